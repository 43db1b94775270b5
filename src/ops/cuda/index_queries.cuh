// Index queries as the tensor cores read them: E4M3 with the groups' scales folded in, and head
// weights with the head's largest scale. E4M3 holds E2M1 values times 2^-8 to 2^6, so a head's
// groups may lie 2^14 apart; what lies further below is rounded to that grid. Powers of two pass
// through every rounding of a score, so the largest scale may move into the weight.
#pragma once

#include "ops/cuda/index_call.cuh"
#include "ops/cuda/wgmma_fp8.cuh"

namespace di::ops::cuda {

/// What the fast score kernel is made for.
struct IndexTile {
  static constexpr int kDim = 128;
  static constexpr int kHeads = 32;
  static constexpr int kGroups = kDim / 32;
  static constexpr int kCodeBytes = kDim / 2;        // of a key
  static constexpr int kQueryBytes = kHeads * kDim;  // of a row, as E4M3
  static constexpr int kWeightBytes = kHeads * 2;
};

/// Eight codes of a query times 2^exponent as E4M3: the even columns, then the odd ones.
__device__ inline uint2 fold_codes(uint32_t codes, int exponent) {
  const float factor = __uint_as_float(static_cast<uint32_t>(127 + max(exponent, -100)) << 23);
  uint32_t folded[2];
#pragma unroll
  for (int odd = 0; odd < 2; ++odd) {
    uint32_t pairs[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t bits = codes >> (16 * i + 4 * odd);
      const float x = decode_e2m1(static_cast<uint8_t>(bits & 15)) * factor;
      const float y = decode_e2m1(static_cast<uint8_t>(bits >> 8 & 15)) * factor;
      pairs[i] = __nv_cvt_float2_to_fp8x2({x, y}, __NV_SATFINITE, __NV_E4M3);
    }
    folded[odd] = pairs[0] | pairs[1] << 16;
  }
  return {folded[0], folded[1]};
}

/// Largest of four bytes.
__device__ inline uint32_t largest_byte(uint32_t bytes) {
  const uint32_t halves = __vmaxu4(bytes, bytes >> 16);
  return __vmaxu4(halves, halves >> 8) & 255;
}

/// Brings rows [first, first + rows) into shared memory: each row's `queries` as a swizzled tile of
/// 32 rows of 128 bytes, and its weights as pairs of bf16 for the four lanes of a quad: lane t has
/// heads 8b + 2t and 8b + 2t + 1 of blocks b = 0 to 3.
template <int kThreads>
__device__ void load_queries(
    const IndexCall& call, uint8_t* queries, uint8_t* weight_pairs, int64_t first, int rows
) {
  const auto* codes = reinterpret_cast<const uint32_t*>(call.q_codes);
  const auto* scales = reinterpret_cast<const uint32_t*>(call.q_scales);
  constexpr int kWords = IndexTile::kQueryBytes / 8;  // of eight codes, of a row
  constexpr int kHeadWords = kWords / IndexTile::kHeads;
  for (int i = static_cast<int>(threadIdx.x); i < rows * kWords; i += kThreads) {
    const int row = i / kWords;
    const int head = i % kWords / kHeadWords;
    const int group = i % kHeadWords / 4;
    uint2 folded{};
    if (head < call.heads) {
      const int64_t at = (first + row) * call.heads + head;
      const uint32_t scale = scales[at];
      const int own = static_cast<int>(scale >> (8 * group) & 255);
      const int largest = static_cast<int>(largest_byte(scale));
      folded = fold_codes(codes[at * kHeadWords + i % kHeadWords], 6 + own - largest);
    }
    uint8_t* tile = queries + row * IndexTile::kQueryBytes + i % 4 * 4;
    *reinterpret_cast<uint32_t*>(tile + swizzled_offset(head, 2 * group)) = folded.x;
    *reinterpret_cast<uint32_t*>(tile + swizzled_offset(head, 2 * group + 1)) = folded.y;
  }
  for (int i = static_cast<int>(threadIdx.x); i < rows * IndexTile::kHeads; i += kThreads) {
    const int row = i / IndexTile::kHeads;
    const int head = i % IndexTile::kHeads;
    bf16 weight{0};
    if (head < call.heads) {
      const int64_t at = (first + row) * call.heads + head;
      const auto largest = static_cast<uint8_t>(largest_byte(scales[at]));
      weight = to_bf16(to_float(call.head_weights[at]) * decode_e8m0(largest));
    }
    auto* weights = reinterpret_cast<bf16*>(weight_pairs + row * IndexTile::kWeightBytes);
    weights[head % 8 / 2 * 8 + head / 8 * 2 + head % 2] = weight;
  }
}

}  // namespace di::ops::cuda
