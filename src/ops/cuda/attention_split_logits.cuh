// Logits of a block's own keys in attention_split.cuh, by the weighers: each of their two
// warpgroups multiplies one half of the channels, and goes on with one half of the heads.
#pragma once

#include "ops/cuda/attention_split_shared.cuh"

namespace di::ops::cuda::split {

/// One half of the channels of the queries, as the A fragments of a warpgroup's threads: fragment
/// `step` has channels [16 · step, 16 · step + 16) of the half.
using HalfQueries = uint32_t[16][4];

/// Sixteen bytes, or zeros.
__device__ inline uint4 vector_or_zeros(bool real, const bf16* from) {
  uint4 x = make_uint4(0, 0, 0, 0);
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n}\n"
      : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w)
      : "l"(from), "r"(static_cast<int>(real))
  );
  return x;
}

/// Loads them. Heads that the model does not have are zeros.
__device__ inline void load_queries(
    const AttentionCall& call, int row, int half, int thread, HalfQueries& a
) {
  const int head = thread / 32 * 16 + thread % 32 / 4;
  const bf16* q = call.q + (static_cast<int64_t>(row) * call.heads + head) * kTileDim + half * 256 +
                  thread % 4 * kVector;
  uint4 x[kPieces / 2][2];
#pragma unroll
  for (int side = 0; side < 2; ++side) {
#pragma unroll
    for (int piece = 0; piece < kPieces / 2; ++piece) {
      x[piece][side] = vector_or_zeros(
          head + side * 8 < call.heads, q + side * 8 * kTileDim + piece * kPieceDim
      );
    }
  }
#pragma unroll
  for (int piece = 0; piece < kPieces / 2; ++piece) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const uint4& of = x[piece][side];
      a[2 * piece][side] = __byte_perm(of.x, of.z, 0x5410);
      a[2 * piece][side + 2] = __byte_perm(of.x, of.z, 0x7632);
      a[2 * piece + 1][side] = __byte_perm(of.y, of.w, 0x5410);
      a[2 * piece + 1][side + 2] = __byte_perm(of.y, of.w, 0x7632);
    }
    hold_registers(a[2 * piece]);
    hold_registers(a[2 * piece + 1]);
  }
}

/// Logits of the block's keys over one half of the channels, a chain of sums of their own.
/// `columns` is the first of the half's. The last fragments wait in shared memory (`later`, the
/// thread's own) until the first ones are used: the compiler has no registers for all.
__device__ inline void own_chain(
    const unsigned char* columns, HalfQueries& queries, const uint4* later, float (&chain)[40]
) {
  const uint64_t keys = b_descriptor(shared_address(columns), 0);
  const auto multiply = [&](int step, uint32_t(&a)[4]) {
    const uint64_t b = keys + (step / 4 * kColumnBytes + step % 4 * 32) / 16;
    wgmma_bf16<kOwnKeys>(chain, a, b, step);
  };
  hold_registers(chain);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 12; ++step) {
    multiply(step, queries[step]);
    if (step == 7) wgmma_commit();
  }
  wgmma_commit();
  wgmma_wait<1>();
#pragma unroll
  for (int step = 0; step < 8; ++step)
    hold_registers(queries[step]);
  uint32_t a[4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint4 x = later[i * 128];
    a[i][0] = x.x;
    a[i][1] = x.y;
    a[i][2] = x.z;
    a[i][3] = x.w;
    hold_registers(a[i]);
  }
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i)
    multiply(12 + i, a[i]);
  wgmma_commit();
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    hold_registers(queries[8 + i]);
    hold_registers(a[i]);
  }
  hold_registers(chain);
}

/// The thread's four logits of each group for one of its two heads: each warpgroup takes one.
using Logits = float[kOwnGroups][4];

/// Adds the two warpgroups' chains.
template <int kSide>
__device__ inline void add_chains(
    Given& given, const float (&chain)[40], int thread, Logits& logits
) {
#pragma unroll
  for (int group = 0; group < kOwnGroups; ++group) {
    const float* x = chain + 8 * group + 2 * (1 - kSide);
    given[kSide][group][thread] = make_float4(x[0], x[1], x[4], x[5]);
  }
  named_barrier(kWeighersMeet, kWeighers);
#pragma unroll
  for (int group = 0; group < kOwnGroups; ++group) {
    const float* x = chain + 8 * group + 2 * kSide;
    const float4 other = given[1 - kSide][group][thread];
    logits[group][0] = x[0] + other.x;
    logits[group][1] = x[1] + other.y;
    logits[group][2] = x[4] + other.z;
    logits[group][3] = x[5] + other.w;
  }
}

/// Removes unused slots, and tells all blocks the maxima.
template <int kCluster>
__device__ inline void publish_maxima(
    Shared<kCluster>& shared, int round, int rank, int head, int lane, Logits& logits
) {
  const int split = groups_of_first(rank);
  float highest[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int group = 0; group < kOwnGroups; ++group) {
    const uint32_t used = shared.used[round][2 * group] | shared.used[round][2 * group + 1] << 8;
    float(&x)[4] = logits[group];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if ((used >> (lane % 4 * 2 + i / 2 * 8 + i % 2) & 1) == 0) x[i] = -INFINITY;
    const float of_group = fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3]));
    if (group < split) {
      highest[0] = fmaxf(highest[0], of_group);
    } else {
      highest[1] = fmaxf(highest[1], of_group);
    }
  }
  const float2 maxima = make_float2(max_over_row(highest[0]), max_over_row(highest[1]));
#pragma unroll
  for (int to = lane % 4; to < kCluster; to += 4)
    send(&shared.maxima[round][rank][head], maxima, &shared.maxima_full[round], to);
}

}  // namespace di::ops::cuda::split
