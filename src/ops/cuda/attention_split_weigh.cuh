// P of a block's own keys in attention_split.cuh, and the denominators: what the weighers do.
#pragma once

#include "ops/cuda/attention_split_logits.cuh"

namespace di::ops::cuda::split {

/// The running maxima of the two blocks of 64 keys in which the own ones of a round lie.
template <int kCluster>
__device__ inline float2 own_tops(const Shared<kCluster>& shared, int round, int rank, int head) {
  // The second one is shared with the next rank, or complete with this.
  const int end = 2 * rank + 2 + (groups_of_first(rank) > 1 ? 1 : 0);
  float2 tops = make_float2(kLowestTop, kLowestTop);
#pragma unroll
  for (int i = 0; i < kCluster; ++i) {
    const float2 maxima = shared.maxima[round][i][head];
    if (2 * i <= 2 * rank) tops.x = fmaxf(tops.x, maxima.x);
    if (2 * i + 1 <= 2 * rank) tops.x = fmaxf(tops.x, maxima.y);
    if (2 * i < end) tops.y = fmaxf(tops.y, maxima.x);
    if (2 * i + 1 < end) tops.y = fmaxf(tops.y, maxima.y);
  }
  for (int before = 0; before < round; ++before) {
#pragma unroll
    for (int i = 0; i < kCluster; ++i) {
      const float2 maxima = shared.maxima[before][i][head];
      tops.x = fmaxf(tops.x, fmaxf(maxima.x, maxima.y));
    }
  }
  tops.y = fmaxf(tops.x, tops.y);
  return tops;
}

/// P of the own keys into `weights`, and a thread's part of the sums of their groups.
__device__ inline void own_weights(
    WarpWeights& weights,
    const Logits& logits,
    float2 tops,
    int rank,
    float factor,
    int lane,
    float (&sums)[kOwnGroups]
) {
  const int split = groups_of_first(rank);
#pragma unroll
  for (int group = 0; group < kOwnGroups; ++group) {
    uint32_t p[2];
    sums[group] = weigh_four(logits[group], group < split ? tops.x : tops.y, factor, p);
    weights.p[group][lane] = make_uint2(p[0], p[1]);
  }
}

/// The sums into `weights`.
__device__ inline void own_sums(WarpWeights& weights, float (&sums)[kOwnGroups], int lane) {
#pragma unroll
  for (const int distance : {1, 2}) {
#pragma unroll
    for (float& sum : sums)
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  }
  if (lane % 4 == 0) {
#pragma unroll
    for (int group = 0; group < kOwnGroups; ++group)
      weights.sums[group][lane / 4] = sums[group];
  }
}

/// Where block `rank`'s groups lie among all.
template <class T, int kAll>
__device__ inline const T (*own_part(const T (&all)[kAll], int rank))[kOwnGroups] {
  return reinterpret_cast<const T(*)[kOwnGroups]>(&all[rank * kOwnGroups]);
}

/// Sends what the warp has written at `from` to the place of `to` in all blocks.
template <int kCluster, class T>
__device__ inline void send_written(const T& to, const T& from, const uint64_t* barrier, int lane) {
  fence_async_proxy_everywhere();
  __syncwarp();
  if (lane == 0) send_to_all<kCluster>(&to, &from, sizeof(T), barrier);
  __syncwarp();
}

/// The denominator of a head, by one thread.
struct Denominator {
  float sum = 0;
  float top = kLowestTop;

  /// Adds the blocks of a round, `blocks` at most.
  template <int kCluster>
  __device__ void add(Shared<kCluster>& shared, int round, int blocks, float factor, int head) {
    constexpr int kRoundBlocks = Shared<kCluster>::kRoundBlocks;
    float tops[kRoundBlocks];
    running_maxima(shared.maxima[round], head, top, tops);
#pragma unroll
    for (int block = 0; block < kRoundBlocks; ++block) {
      if (block >= blocks) break;
      float sums[kBlockGroups];
#pragma unroll
      for (int i = 0; i < kBlockGroups; ++i) {
        const int group = block * kBlockGroups + i;
        sums[i] = shared.weights().sums[head / 8 % 2][head / 16][group][head % 8];
      }
      const float decay = decay_of(top, tops[block], factor);
      sum = sum * decay + block_sum(sums[0], sums[1], sums[2], sums[3]);
      top = tops[block];
    }
  }

  /// 1 / denominator, times what the tiles' shift takes.
  __device__ float inverse(const AttentionCall& call, int slots, float factor, int head) const {
    const float sink = head < call.heads ? call.sink[head] : 0.0f;
    return slots == 0 ? 0.0f
                      : static_cast<float>(1 << kKeyShift) / (sum + sink_weight(sink, top, factor));
  }
};

/// A weighing warpgroup: one half of the channels of the logits, then one of each thread's two
/// heads of the weights, which go through device memory (`scratch`: a row's, for all rounds).
template <int kHalf, int kCluster>
__device__ inline void weigh(
    const AttentionCall& call,
    Shared<kCluster>& shared,
    int row,
    int rank,
    int thread,
    RowWeights& scratch
) {
  constexpr int kRounds = Shared<kCluster>::kRounds;
  constexpr int kRoundBlocks = Shared<kCluster>::kRoundBlocks;
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int head = warp * 16 + lane / 4 + kHalf * 8;
  const float factor = exponent_factor(call.scale);
  Denominator denominator;
  int blocks = 1;
#pragma unroll 1
  for (int round = 0; round < kRounds && round * kRoundBlocks < blocks; ++round) {
    HalfQueries queries;
    if (round > 0) barrier_wait(&shared.weights_read[round - 1], 0);
    load_queries(call, row, kHalf, thread, queries);
    auto* later = reinterpret_cast<uint4*>(&shared.given()[kHalf][0][thread]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto& x = queries[12 + i];
      later[i * 128] = make_uint4(x[0], x[1], x[2], x[3]);
    }
    if (round == 0) cluster_wait();  // the barriers of all blocks are prepared
    barrier_wait(&shared.keys_full[round][kHalf], 0);
    float chain[40];
    own_chain(shared.keys(kHalf * 4), queries, later, chain);
    Logits logits;
    add_chains<kHalf>(shared.given(), chain, thread, logits);
    cluster_arrive_relaxed();  // behind the last use of the place of P
    publish_maxima(shared, round, rank, head, lane, logits);
    cluster_wait();  // all blocks are done with that place
    barrier_wait(&shared.maxima_full[round], 0);
    const float2 tops = own_tops(shared, round, rank, head);
    WarpWeights& weights = scratch[round * kCluster + rank][kHalf][warp];
    float sums[kOwnGroups];
    own_weights(weights, logits, tops, rank, factor, lane, sums);
    send_written<kCluster>(
        *own_part(shared.weights().p[kHalf][warp], rank),
        weights.p,
        &shared.weights_full[round][rank],
        lane
    );
    own_sums(weights, sums, lane);
    send_written<kCluster>(
        *own_part(shared.weights().sums[kHalf][warp], rank),
        weights.sums,
        &shared.sums_full[round],
        lane
    );
    blocks = shared.blocks();
    if (kHalf == 0 && thread < kTileRows) {
      for (uint64_t& full : shared.weights_full[round])
        barrier_wait(&full, 0);
      barrier_wait(&shared.sums_full[round], 0);
      denominator.add(shared, round, blocks - round * kRoundBlocks, factor, thread);
      barrier_arrive(&shared.weights_read[round]);
    }
  }
  if (kHalf == 0 && thread < kTileRows) {
    shared.inverse[thread] = denominator.inverse(call, shared.slots(), factor, thread);
    barrier_arrive(&shared.inverse_full);
  }
}

}  // namespace di::ops::cuda::split
