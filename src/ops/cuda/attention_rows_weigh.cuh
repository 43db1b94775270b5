// The warpgroup of attention_rows.cuh that brings queries, computes logits and the softmax, and
// leaves P for those that multiply it with V.
#pragma once

#include "ops/cuda/attention_rows_shared.cuh"

namespace di::ops::cuda::rows {

/// Softmax state of the thread's two heads.
struct Running {
  float top[2] = {kLowestTop, kLowestTop};
  float denominator[2] = {0, 0};
  float decay[2];
  float sums[2][4];  // the thread's part of the sums of p over 16 keys

  /// Takes a block of logits and leaves P in `p`; add_sums() completes it. What both heads and all
  /// groups do is kept side by side, so that latencies overlap.
  __device__ void take(const float (&s)[32], float factor, uint32_t (&p)[4][4]) {
    float after[2];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float highest[4];
#pragma unroll
      for (int group = 0; group < 4; ++group) {
        const float* x = s + 8 * group + 2 * side;
        highest[group] = fmaxf(fmaxf(x[0], x[1]), fmaxf(x[4], x[5]));
      }
      after[side] = fmaxf(fmaxf(highest[0], highest[1]), fmaxf(highest[2], highest[3]));
    }
#pragma unroll
    for (const int distance : {1, 2}) {
#pragma unroll
      for (float& highest : after)
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, distance));
    }
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      after[side] = fmaxf(top[side], after[side]);
      decay[side] = decay_of(top[side], after[side], factor);
      top[side] = after[side];
    }
#pragma unroll
    for (int group = 0; group < 4; ++group) {
#pragma unroll
      for (int side = 0; side < 2; ++side)
        sums[side][group] = weigh_group(s + 8 * group, side, after[side], factor, p[group]);
    }
  }

  __device__ void add_sums() {
#pragma unroll
    for (const int distance : {1, 2}) {
#pragma unroll
      for (auto& side : sums) {
#pragma unroll
        for (float& sum : side)
          sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      }
    }
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const float(&x)[4] = sums[side];
      denominator[side] = denominator[side] * decay[side] + block_sum(x[0], x[1], x[2], x[3]);
    }
  }
};

/// Starts the products of the queries with one half of a tile's channels, a chain of sums of their
/// own: tensor cores truncate a running sum.
__device__ inline void begin_chain(uint64_t q, uint64_t keys, int half, float (&chain)[32]) {
  hold_registers(chain);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int step = half * 16 + i;
    const int offset = (step / 4 * kColumnBytes + step % 4 * 32) / 16;
    wgmma_logits<64>(chain, q + offset, keys + offset, i);
  }
  wgmma_commit();
}

/// Asks the second-level cache for the queries of a row, by one warpgroup.
__device__ inline void prefetch_queries(const bf16* q, int heads, int thread) {
  for (int line = thread; line < heads * (kTileDim / 64); line += 128)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(q + line * 64));
}

/// Stores the fragments of P as the tile that the mixers take as A.
__device__ inline void store_weights(
    unsigned char* tile, const uint32_t (&p)[4][4], int warp, int lane
) {
  const int row = warp * 16 + lane % 16;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const uint32_t to = shared_address(tile + swizzled_offset(row, step * 2 + lane / 16));
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(p[step][0]),
                 "r"(p[step][1]),
                 "r"(p[step][2]),
                 "r"(p[step][3])
                 : "memory");
  }
  fence_async_proxy();
}

/// The warpgroup of logits and softmax. It brings its queries itself; those of the next row as soon
/// as the logits of this one are complete.
__device__ inline void weigh(
    const AttentionCall& call, Shared& shared, const RowLists& lists, int thread
) {
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int head = warp * 16 + lane / 4;
  const float factor = exponent_factor(call.scale);
  const uint64_t q = b_descriptor(shared_address(shared.q), 0);
  const uint64_t tiles = b_descriptor(shared_address(shared.keys[0]), 0);
  const Queries<4> queries(shared.q, warp, lane);
  const int64_t row_size = static_cast<int64_t>(call.heads) * kTileDim;
  RingPlace<kStages> place;
  uint32_t number = 0;
  queries.begin(call.q + blockIdx.x * row_size, call.heads);
  for (int row = static_cast<int>(blockIdx.x); row < call.rows; row += gridDim.x, ++number) {
    const int next = row + static_cast<int>(gridDim.x);
    queries.finish();
    named_barrier(kWeighersMeet, 128);
    if (next < call.rows) prefetch_queries(call.q + next * row_size, call.heads, thread);
    barrier_wait(&shared.list_full[number % 2], number / 2 % 2);
    const int slots = lists.slots(number);
    const int blocks = blocks_of(slots);
    Running running;
    for (int block = 0; block < blocks; ++block) {
      const uint64_t keys = tiles + place.slot * (kTileBytes / 16);
      float left[32];
      float s[32];
      barrier_wait(&shared.full[place.slot][0], place.parity);
      fence_async_proxy();
      begin_chain(q, keys, 0, left);
      barrier_wait(&shared.full[place.slot][1], place.parity);
      fence_async_proxy();
      begin_chain(q, keys, 1, s);
      wgmma_wait<0>();
      hold_registers(left);
      hold_registers(s);
#pragma unroll
      for (int i = 0; i < 32; ++i)
        s[i] = left[i] + s[i];
      if (block + 1 == blocks && next < call.rows) {
        named_barrier(kWeighersMeet, 128);
        queries.begin(call.q + next * row_size, call.heads);
      }
      const uint64_t used = lists.used(number, block);
      if (used != ~uint64_t{0}) {
#pragma unroll
        for (int group = 0; group < 4; ++group)
          mask_group(s + 8 * group, static_cast<uint32_t>(used >> (16 * group)), lane);
      }
      uint32_t p[4][4];
      running.take(s, factor, p);
      const int slot = place.slot;
      barrier_wait(&shared.empty[slot][0], place.parity ^ 1);
      barrier_wait(&shared.empty[slot][1], place.parity ^ 1);
      store_weights(shared.weights[slot], p, warp, lane);
      if (lane % 4 == 0) {
        shared.decay[slot][head] = running.decay[0];
        shared.decay[slot][head + 8] = running.decay[1];
      }
      barrier_arrive(&shared.weights_full[slot]);
      place.advance();
      running.add_sums();
    }
    float* inverse = shared.inverse[number % kRowsAhead];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const float sink = head + side * 8 < call.heads ? call.sink[head + side * 8] : 0.0f;
      const float denominator =
          running.denominator[side] + sink_weight(sink, running.top[side], factor);
      if (lane % 4 == 0) {
        inverse[head + side * 8] =
            slots == 0 ? 0.0f : static_cast<float>(1 << kKeyShift) / denominator;
      }
    }
    barrier_arrive(&shared.inverse_full[number % kRowsAhead]);
  }
}

}  // namespace di::ops::cuda::rows
