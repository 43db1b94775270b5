// The softmax of attention on the tensor cores' accumulators: shared by the kernels that must give
// each other's bits. Logits stay as the tensor cores leave them; `factor` turns them into powers of
// two. A thread holds two rows (heads), r and r + 8, in four lanes that share them.
#pragma once

#include "ops/cuda/attention_tile.cuh"

namespace di::ops::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLowestTop = -1e30f;
inline constexpr int kGroupKeys = 16;  // keys whose p are summed first

/// What turns a logit of a tile into the exponent of two.
__device__ inline float exponent_factor(float scale) {
  return scale * static_cast<float>(1 << kKeyShift) * kLog2E;
}

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// exp(logit − top).
__device__ inline float weight_of(float logit, float top, float factor) {
  return exp2_fast((logit - top) * factor);
}

/// P of 16 keys for one head: the weights of a thread's four logits as two words of the fragment,
/// and their sum.
__device__ inline float weigh_four(const float (&x)[4], float top, float factor, uint32_t (&p)[2]) {
  float w[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    w[i] = weight_of(x[i], top, factor);
  p[0] = round_pair(w[0], w[1]);
  p[1] = round_pair(w[2], w[3]);
  return (w[0] + w[1]) + (w[2] + w[3]);
}

/// The same for one of the two heads of a thread's eight logits; `side` is the head.
__device__ inline float weigh_group(
    const float* group, int side, float top, float factor, uint32_t (&p)[4]
) {
  const float* x = group + 2 * side;
  uint32_t words[2];
  const float sum = weigh_four({x[0], x[1], x[4], x[5]}, top, factor, words);
  p[side] = words[0];
  p[side + 2] = words[1];
  return sum;
}

/// What a running maximum that rose from `before` to `after` leaves of older sums.
__device__ inline float decay_of(float before, float after, float factor) {
  return exp2_fast((before - after) * factor);
}

/// The sink's share of the denominator.
__device__ inline float sink_weight(float sink, float top, float factor) {
  return exp2_fast(fmaf(sink, kLog2E, -top * factor));
}

/// The largest of the four lanes that share a row.
__device__ inline float max_over_row(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/// Their sum, in an order that is the same for all.
__device__ inline float sum_over_row_lanes(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// Sum of a block from its groups'.
__device__ inline float block_sum(float a, float b, float c, float d) {
  return (a + b) + (c + d);
}

/// Removes the unused of 16 keys: bit k of `used` tells of key k. `s` holds the thread's columns
/// 2t, 2t + 1, 2t + 8 and 2t + 9 of both rows.
__device__ inline void mask_group(float* s, uint32_t used, int lane) {
  const uint32_t bits = used >> (lane % 4 * 2);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if ((bits >> (i / 4 * 8 + i % 2) & 1) == 0) s[i] = -INFINITY;
  }
}

/// Eight consecutive channels of an output row from the accumulators of four column groups.
/// `first` is the accumulator of row r (0) or r + 8 (2) in the first group.
__device__ inline uint4 output_vector(const float* d, int first, float factor) {
  float x[kVector];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = d[4 * i + first] * factor;
    x[i + 4] = d[4 * i + first + 1] * factor;
  }
  return pack(x);
}

}  // namespace di::ops::cuda
