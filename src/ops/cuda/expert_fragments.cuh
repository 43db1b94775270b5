// Packed weights in shared memory to A fragments of the expert products (layouts: packing.h,
// wgmma.cuh). Of the two row tiles in a slot, warpgroup 0 takes the first and 1 the second: gate
// and up of the same inner channels in phase 1, two neighbours of down in phase 2.
#pragma once

#include <cstdint>

#include "ops/cuda/expert_work.cuh"
#include "ops/cuda/unpack.cuh"

namespace di::ops::cuda {

/// Where a thread stands among the consumers.
struct ConsumerPlace {
  int thread;  ///< of the warpgroup
  int group;   ///< warpgroup, 0 or 1
  __device__ int warp() const { return thread / 32; }
  /// Pair of neighbouring matrix rows, or results, of a warp: 0 to 7.
  __device__ int row_pair() const { return thread % 32 / 4; }

  /// Of the calling thread. The compiler cannot know that it stays the same: otherwise it keeps
  /// everything that follows from it, for every instance of the main loop, in registers for good.
  static __device__ ConsumerPlace now() {
    int thread = 0;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return {thread % 128, thread / 128};
  }
};

/// Offsets inside a weight slot of what a thread reads of a column chunk.
template <bool kFp8>
struct FragmentPlace {
  uint32_t codes;
  uint32_t scales;
  int shift;  ///< of the multipliers in their word, in FP8

  /// Of the calling thread; the second row tile is `second` bytes behind the first.
  static __device__ FragmentPlace now(int second) {
    const ConsumerPlace at = ConsumerPlace::now();
    const int block = at.group * second;
    return {
        static_cast<uint32_t>(block + 16 * at.thread),
        static_cast<uint32_t>(kFp8 ? block + 4096 : block + 2048 + at.thread / 4 * 4),
        16 * (at.warp() / 2)};
  }
};

/// Codes and multipliers of one column chunk that a thread needs: from() reads them from the blocks
/// of that chunk at a shared-memory address, get() gives the fragment of product k of the chunk, 0
/// to 3.
template <bool kFp8>
struct ExpertFragments;

template <>
struct ExpertFragments<false> {
  uint4 codes;
  uint32_t scales;

  __device__ void from(uint32_t block, const FragmentPlace<false>& place) {
    codes = load_shared_16(block + place.codes);
    scales = load_shared_4(block + place.scales);
  }

  __device__ void get(int k, uint32_t (&a)[4]) const {
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    const int group = k / 2 * 2;
    unpack_fp4(
        words[k], fp4_multiplier_pair(scales, group), fp4_multiplier_pair(scales, group + 1), a
    );
  }
};

template <>
struct ExpertFragments<true> {
  uint4 codes[2];
  uint32_t scales;

  __device__ void from(uint32_t block, const FragmentPlace<true>& place) {
    codes[0] = load_shared_16(block + place.codes);
    codes[1] = load_shared_16(block + place.codes + 2048);
    scales = load_shared_4(block + place.scales) >> place.shift;
  }

  __device__ void get(int k, uint32_t (&a)[4]) const {
    const uint4& v = codes[k / 2];
    const uint32_t scale = multiplier_pair(scales >> 8 * (k / 2) & 255u);
    unpack_fp8(k % 2 == 0 ? v.x : v.z, scale, a[0], a[1]);
    unpack_fp8(k % 2 == 0 ? v.y : v.w, scale, a[2], a[3]);
  }
};

}  // namespace di::ops::cuda
