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

/// What a thread reads of a row's query: eight codes of a head, and the head's scales.
struct QueryWord {
  static constexpr int kOfHead = IndexTile::kDim / 8;
  static constexpr int kOfRow = IndexTile::kHeads * kOfHead;

  uint32_t codes = 0;
  uint32_t scales = 0;

  __device__ QueryWord(const IndexCall& call, int64_t row, int word) {
    const int head = word / kOfHead;
    if (head >= call.heads) return;
    const int64_t at = row * call.heads + head;
    codes = reinterpret_cast<const uint32_t*>(call.q_codes)[at * kOfHead + word % kOfHead];
    scales = reinterpret_cast<const uint32_t*>(call.q_scales)[at];
  }

  /// Folds it into the row's `queries`, a swizzled tile of 32 rows of 128 bytes.
  __device__ void write(uint8_t* queries, int word) const {
    const int group = word % kOfHead / 4;
    const int own = static_cast<int>(scales >> (8 * group) & 255);
    const uint2 folded = fold_codes(codes, 6 + own - static_cast<int>(largest_byte(scales)));
    uint8_t* to = queries + word % 4 * 4;
    const int head = word / kOfHead;
    *reinterpret_cast<uint32_t*>(to + swizzled_offset(head, 2 * group)) = folded.x;
    *reinterpret_cast<uint32_t*>(to + swizzled_offset(head, 2 * group + 1)) = folded.y;
  }
};

/// The weight of a head with its largest scale; 0 where there is no such head.
struct HeadWeight {
  bf16 weight{0};
  uint32_t scales = 0;

  __device__ HeadWeight(const IndexCall& call, int64_t row, int head) {
    if (head >= call.heads) return;
    const int64_t at = row * call.heads + head;
    weight = call.head_weights[at];
    scales = reinterpret_cast<const uint32_t*>(call.q_scales)[at];
  }

  /// Writes it into the row's `weights`, pairs of bf16 for the four lanes of a quad: lane t has
  /// heads 8b + 2t and 8b + 2t + 1 of blocks b = 0 to 3.
  __device__ void write(uint8_t* weights, int head) const {
    const float scale = decode_e8m0(static_cast<uint8_t>(largest_byte(scales)));
    reinterpret_cast<bf16*>(weights)[head % 8 / 2 * 8 + head / 8 * 2 + head % 2] =
        to_bf16(to_float(weight) * scale);
  }
};

}  // namespace di::ops::cuda
