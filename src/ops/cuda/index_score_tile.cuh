// The scores of a warpgroup's tile of keys for one query, and how they are written. A group of 32
// channels is one exact FP8 product; the four groups join in fp32 with the key's scales, in order.
// Relu, bf16, head weights and the sum over heads follow in registers: that sum is one more product
// of the tensor cores, by ones.
#pragma once

#include "ops/cuda/index_key_stream.cuh"
#include "ops/cuda/unpack.cuh"

namespace di::ops::cuda {

/// What all query tiles have in their descriptors.
inline constexpr uint64_t kQueryDescriptor = uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;

/// max(x, 0) of both, rounded to bf16; NaN stays NaN.
__device__ inline uint32_t round_positive_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Scores of a tile for the query whose descriptor begins with `query`: x of key lane / 4, y of the
/// one eight behind. The same in the four lanes of a key. Unless the keys' scales are `wide`, that
/// of the first group is left to the caller. With kSplit the sums of the first groups
/// are joined while the products of the others are made.
template <bool kSplit>
__device__ float2 score_tile(KeyFragment& keys, bool wide, uint32_t query, const uint4& weights) {
  float sums[IndexTile::kGroups][16];
#pragma unroll
  for (int group = 0; group < IndexTile::kGroups; ++group)
    hold_registers(keys.codes[group]);
  wgmma_fence();
#pragma unroll
  for (int group = 0; group < IndexTile::kGroups; ++group) {
    wgmma_e4m3_n32(sums[group], keys.codes[group], kQueryDescriptor | (query + 2 * group));
    if (kSplit && group == 1) wgmma_commit();
  }
  wgmma_commit();
  float dots[16];
  wgmma_wait<kSplit ? 1 : 0>();
  hold_registers(sums[0]);
  hold_registers(sums[1]);
  if (wide) {
#pragma unroll
    for (int i = 0; i < 16; ++i)  // block of heads i / 4, key half i / 2 % 2, head i % 2
      sums[0][i] *= keys.scales[0][i / 2 % 2];
    hold_registers(sums[0]);
  }
#pragma unroll
  for (int i = 0; i < 16; ++i)
    dots[i] = fmaf(sums[1][i], keys.scales[1][i / 2 % 2], sums[0][i]);
  if constexpr (kSplit) wgmma_wait<0>();
  hold_registers(sums[2]);
  hold_registers(sums[3]);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    dots[i] = fmaf(sums[2][i], keys.scales[2][i / 2 % 2], dots[i]);
    dots[i] = fmaf(sums[3][i], keys.scales[3][i / 2 % 2], dots[i]);
  }
  const uint32_t weight[4] = {weights.x, weights.y, weights.z, weights.w};
  uint32_t products[4][2];
#pragma unroll
  for (int i = 0; i < 8; ++i)
    products[i / 2][i % 2] =
        multiply_bf16x2(round_positive_pair(dots[2 * i], dots[2 * i + 1]), weight[i / 2]);
  float total[4] = {0, 0, 0, 0};
  add_row_sums(total, {products[0][0], products[0][1], products[1][0], products[1][1]});
  add_row_sums(total, {products[2][0], products[2][1], products[3][0], products[3][1]});
  return {total[0], total[2]};
}

/// Writes the order key of `score` as number `at` of all keys, and the best of its vector: eight
/// lanes apart by four, of which the first writes.
__device__ inline void write_key(
    const IndexScores& scores, uint32_t at, float score, bool seen, bool owns, bool is_first
) {
  const uint32_t key = seen ? order_key(score) : 0;
  uint32_t best = key;
#pragma unroll
  for (int distance = 4; distance < 32; distance *= 2)
    best = max(best, __shfl_xor_sync(0xffffffffu, best, distance));
  if (owns) scores.keys[at] = static_cast<uint16_t>(key);
  if (is_first) scores.bests[at / kVectorKeys] = static_cast<uint16_t>(best);
}

}  // namespace di::ops::cuda
