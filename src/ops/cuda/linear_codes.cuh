// The linear kernel's weights on their last way: from packed blocks in shared memory to the A
// fragments of products, for each format.
#pragma once

#include "ops/cuda/packing.h"
#include "ops/cuda/pipeline.cuh"
#include "ops/cuda/unpack.cuh"

namespace di::ops::cuda {

/// A thread's codes of one block: read() fetches them, get() gives the A fragment of product k of
/// 16 columns, 0 to 3.
template <WeightFormat kFormat>
struct BlockCodes;

template <>
struct BlockCodes<WeightFormat::kFp4> {
  uint4 codes;
  uint32_t multipliers;
  __device__ void read(uint32_t block, int thread) {
    codes = load_shared_16(block + 16 * thread);
    multipliers = load_shared_4(block + 2048 + thread / 4 * 4);
  }
  __device__ void get(int k, uint32_t (&a)[4]) const {
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    const int group = k / 2 * 2;
    const uint32_t upper = fp4_multiplier_pair(multipliers, group);
    unpack_fp4(words[k], upper, fp4_multiplier_pair(multipliers, group + 1), a);
  }
};

template <>
struct BlockCodes<WeightFormat::kFp8> {
  uint4 codes[2];
  uint32_t multipliers;
  __device__ void read(uint32_t block, int thread) {
    multipliers = load_shared_4(block + 4096) >> thread / 64 * 16;
    codes[0] = load_shared_16(block + 16 * thread);
    codes[1] = load_shared_16(block + 16 * thread + 2048);
  }
  __device__ void get(int k, uint32_t (&a)[4]) const {
    const uint4& q = codes[k / 2];
    const uint32_t multiplier = multiplier_pair(multipliers >> k / 2 * 8 & 255);
    unpack_fp8(k % 2 == 0 ? q.x : q.z, multiplier, a[0], a[1]);
    unpack_fp8(k % 2 == 0 ? q.y : q.w, multiplier, a[2], a[3]);
  }
};

template <>
struct BlockCodes<WeightFormat::kBf16> {
  uint32_t pieces;
  __device__ void read(uint32_t block, int thread) { pieces = block + 16 * thread; }
  __device__ void get(int k, uint32_t (&a)[4]) const {
    const uint4 q = load_shared_16(pieces + 2048 * k);
    a[0] = q.x;
    a[1] = q.y;
    a[2] = q.z;
    a[3] = q.w;
  }
};

}  // namespace di::ops::cuda
