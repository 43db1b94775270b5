// Pieces of the hyper-connection kernels: the collapse of eight channels, and everything between
// the projection of a row and its mixes.
#pragma once

#include "ops/cuda/scalars.cuh"
#include "ops/cuda/vectors.cuh"
#include "ops/mhc.h"

namespace di::ops::cuda {

inline constexpr int kStreams = 4;
inline constexpr int kMixes = kStreams * (2 + kStreams);

/// A sum of five products in fp32, in any order, differs from the reference's value (rounded
/// products, summed in double, rounded) by less than this share of Σ |product|.
inline constexpr float kSumError = 0x1p-21f;

/// Rounds two fp32 values that are known within ±error to bf16. `is_safe` becomes false when an
/// error could change the result.
__device__ inline uint32_t round_pair_within(
    float low, float high, float low_error, float high_error, bool& is_safe
) {
  const uint32_t below = round_pair(low - low_error, high - high_error);
  const uint32_t above = round_pair(low + low_error, high + high_error);
  is_safe = below == above;
  return below;
}

/// The reference's Σ a_c · h_c for one channel.
__device__ inline float exact_mix(
    const float (&a)[kStreams], float h0, float h1, float h2, float h3
) {
  double sum = 0;
  sum += a[0] * h0;
  sum += a[1] * h1;
  sum += a[2] * h2;
  sum += a[3] * h3;
  return static_cast<float>(sum);
}

/// Σ a_c · h_c of eight channels in bf16, bit for bit what the reference gives.
///
/// The sum is made in fp32 first, with a bound of its error. Where the bound reaches a rounding
/// border, about one time in a thousand, the pair is done again in double.
__device__ inline uint4 collapse_vector(const uint4 (&h)[kStreams], const float (&a)[kStreams]) {
  float x[kStreams][kVector];
#pragma unroll
  for (int c = 0; c < kStreams; ++c)
    unpack(h[c], x[c]);
  const float weight = kSumError * (fabsf(a[0]) + fabsf(a[1]) + fabsf(a[2]) + fabsf(a[3]));
  float sum[kVector];
  float error[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    sum[i] = fmaf(a[3], x[3][i], fmaf(a[2], x[2][i], fmaf(a[1], x[1][i], a[0] * x[0][i])));
    const float largest =
        fmaxf(fmaxf(fabsf(x[0][i]), fabsf(x[1][i])), fmaxf(fabsf(x[2][i]), fabsf(x[3][i])));
    error[i] = weight * largest;
  }
  uint32_t pairs[4];
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    bool is_safe = false;
    pairs[p] =
        round_pair_within(sum[2 * p], sum[2 * p + 1], error[2 * p], error[2 * p + 1], is_safe);
    if (!is_safe) {
      pairs[p] = round_pair(
          exact_mix(a, x[0][2 * p], x[1][2 * p], x[2][2 * p], x[3][2 * p]),
          exact_mix(a, x[0][2 * p + 1], x[1][2 * p + 1], x[2][2 * p + 1], x[3][2 * p + 1])
      );
    }
  }
  return {pairs[0], pairs[1], pairs[2], pairs[3]};
}

/// Operands of an expand.
struct ExpandArgs {
  bf16* out;
  const bf16* y;
  const bf16* h;
  const float* post;
  const float* comb;
  int64_t hidden;
};

inline ExpandArgs expand_args(const MhcExpand& op) {
  return {
      .out = op.h_out.data,
      .y = op.y.data,
      .h = op.h.data,
      .post = op.post.data,
      .comb = op.comb.data,
      .hidden = op.h.dim(2)};
}

__device__ inline uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
__device__ inline float number_of(const float4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/// The reference's value of pair `p` of output stream j: post_j · y + Σ_i comb_ij · h_i.
__device__ inline uint32_t exact_expand(
    const uint4 (&h)[kStreams],
    const uint4& y,
    const float4 (&comb)[kStreams],
    const float4& post,
    int j,
    int p
) {
  float a[kStreams];
  uint32_t pair[kStreams];
#pragma unroll
  for (int i = 0; i < kStreams; ++i) {
    a[i] = number_of(comb[i], j);
    pair[i] = word_of(h[i], p);
  }
  const float factor = number_of(post, j);
  const uint32_t written = word_of(y, p);
  const float low =
      exact_mix(a, low_float(pair[0]), low_float(pair[1]), low_float(pair[2]), low_float(pair[3]));
  const float high = exact_mix(
      a, high_float(pair[0]), high_float(pair[1]), high_float(pair[2]), high_float(pair[3])
  );
  return round_pair(factor * low_float(written) + low, factor * high_float(written) + high);
}

/// Eight channels of a row's streams `h` become those behind the sublayer that gave y, bit for bit
/// what the reference gives. comb[i] is of input stream i. Sums are made in fp32 with a bound of
/// their error, as in collapse_vector; the pairs for which it does not do are made again.
__device__ inline void expand_vectors(
    uint4 (&h)[kStreams], const uint4& y, const float4 (&comb)[kStreams], const float4& post
) {
  float weight[kStreams];
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    weight[j] = kSumError * (fabsf(number_of(comb[0], j)) + fabsf(number_of(comb[1], j)) +
                             fabsf(number_of(comb[2], j)) + fabsf(number_of(comb[3], j)) +
                             fabsf(number_of(post, j)));
  }
  uint32_t out[kStreams][4];
  uint32_t doubtful = 0;
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    float x[kStreams][2];
    float largest[2];
    const float written[2] = {low_float(word_of(y, p)), high_float(word_of(y, p))};
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
      x[i][0] = low_float(word_of(h[i], p));
      x[i][1] = high_float(word_of(h[i], p));
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      largest[k] = fmaxf(
          fmaxf(fmaxf(fabsf(x[0][k]), fabsf(x[1][k])), fmaxf(fabsf(x[2][k]), fabsf(x[3][k]))),
          fabsf(written[k])
      );
    }
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      float sum[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        sum[k] = number_of(comb[0], j) * x[0][k];
#pragma unroll
        for (int i = 1; i < kStreams; ++i)
          sum[k] = fmaf(number_of(comb[i], j), x[i][k], sum[k]);
        sum[k] = fmaf(number_of(post, j), written[k], sum[k]);
      }
      bool is_safe = false;
      out[j][p] = round_pair_within(
          sum[0], sum[1], weight[j] * largest[0], weight[j] * largest[1], is_safe
      );
      doubtful |= is_safe ? 0u : 1u << (4 * j + p);
    }
  }
  for (; doubtful != 0; doubtful &= doubtful - 1) {
    const int bit = __ffs(static_cast<int>(doubtful)) - 1;
    const uint32_t exact = exact_expand(h, y, comb, post, bit / 4, bit % 4);
#pragma unroll
    for (int i = 0; i < kStreams * 4; ++i)
      out[i / 4][i % 4] = i == bit ? exact : out[i / 4][i % 4];
  }
#pragma unroll
  for (int j = 0; j < kStreams; ++j)
    h[j] = {out[j][0], out[j][1], out[j][2], out[j][3]};
}

/// Where the mixes of a site come from and go to.
struct MixArgs {
  float* pre;
  float* post;
  float* comb;
  float* mixes;
  const float* scale;
  const float* base;
  int sinkhorn_iters;
  float hc_eps;
};

inline MixArgs mix_args_of(const MhcMix& op) {
  return {
      .pre = op.pre.data,
      .post = op.post.data,
      .comb = op.comb.data,
      .mixes = op.mixes.data,
      .scale = op.scale.data,
      .base = op.base.data,
      .sinkhorn_iters = op.sinkhorn_iters,
      .hc_eps = op.hc_eps};
}

/// A sum and what its rounding left out.
struct ExactSum {
  float sum;
  float rest;
};

__device__ inline ExactSum add_exactly(float a, float b) {
  const float sum = a + b;
  const float from_b = sum - a;
  return {sum, (a - (sum - from_b)) + (b - from_b)};
}

/// A divisor with an estimate of its reciprocal that did not wait for its last bits.
struct Divisor {
  float value;
  float reciprocal;
};

/// Σ of the values of lanes `first`, `first` + stride, … of 16, rounded once, plus eps: what a sum
/// in double gives, in fewer cycles, since the rests of such numbers add up exactly.
__device__ inline Divisor divisor_of(float z, int first, int stride, float eps) {
  float part[kStreams];
#pragma unroll
  for (int i = 0; i < kStreams; ++i)
    part[i] = __shfl_sync(0xffffffffu, z, first + i * stride, 16);
  const ExactSum low = add_exactly(part[0], part[1]);
  const ExactSum high = add_exactly(part[2], part[3]);
  const ExactSum both = add_exactly(low.sum, high.sum);
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(both.sum + eps));
  return {both.sum + ((low.rest + high.rest) + both.rest) + eps, reciprocal};
}

/// z / divisor, correctly rounded for the sizes that meet here: two steps of the residual.
__device__ inline float divide(float z, const Divisor& divisor) {
  const float d = -divisor.value;
  const float r = divisor.reciprocal;
  const float reciprocal = fmaf(r, fmaf(d, r, 1.0f), r);
  float quotient = z * reciprocal;
  quotient = fmaf(fmaf(d, quotient, z), reciprocal, quotient);
  return fmaf(fmaf(d, quotient, z), reciprocal, quotient);
}

/// Row softmax, then alternating normalisation: `iters` column passes in all, the last pass one.
/// 16 lanes hold the 4 × 4 numbers of a row, input stream by input stream. Passes that would change
/// nothing are left out: once one has left every bit as it was, so would all behind it.
__device__ inline float sinkhorn(float z, int iters, float eps) {
  const int lane = threadIdx.x % 16;
  const int row = lane / kStreams * kStreams;
  const int column = lane % kStreams;
  float top = fmaxf(z, __shfl_xor_sync(0xffffffffu, z, 1));
  top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
  z = exp_f32(z - top);
  z = divide(z, divisor_of(z, row, 1, 0)) + eps;
  z = divide(z, divisor_of(z, column, kStreams, eps));
#pragma unroll 1
  for (int pass = 1; pass < iters; ++pass) {
    const float before = z;
    z = divide(z, divisor_of(z, row, 1, eps));
    z = divide(z, divisor_of(z, column, kStreams, eps));
    if (__all_sync(0xffffffffu, z == before)) break;
  }
  return z;
}

/// comb of a row from its mixes (projection times rms factor, in shared memory), which are written
/// too. All lanes of a warp call it, each half for a row of its own; `row` < 0 writes nothing.
__device__ inline void finish_comb(const MixArgs& op, const float* m, int64_t row) {
  const int lane = threadIdx.x % 16;
  const int last = 2 * kStreams + lane;
  float z = m[last] * op.scale[2] + op.base[last];
  if (op.sinkhorn_iters > 0) z = sinkhorn(z, op.sinkhorn_iters, op.hc_eps);
  if (row < 0) return;
  op.comb[row * 16 + lane] = z;
  op.mixes[row * kMixes + lane] = m[lane];
  if (lane < 2 * kStreams) op.mixes[row * kMixes + 16 + lane] = m[16 + lane];
}

/// pre and post of a row, likewise.
__device__ inline void finish_gates(const MixArgs& op, const float* m, int64_t row) {
  const int lane = threadIdx.x % 16;
  if (row < 0 || lane >= 2 * kStreams) return;
  const bool is_pre = lane < kStreams;
  const float gate = sigmoid_f32(m[lane] * op.scale[is_pre ? 0 : 1] + op.base[lane]);
  if (is_pre) {
    op.pre[row * kStreams + lane] = gate + op.hc_eps;
  } else {
    op.post[row * kStreams + lane - kStreams] = 2.0f * gate;
  }
}

}  // namespace di::ops::cuda
