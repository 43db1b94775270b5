// Sparse attention of few rows with the bits of attention_rows.cuh: a cluster of eight blocks takes
// one row, or one of four in two rounds. For the logits they share the keys, for the values the
// output channels, so each element's chain of sums runs in one place and in order, and no partial
// sums travel.
//
// Half of a block's warps unpack its own keys and its channels of all keys; the other half has the
// queries in registers and multiplies them. Then the maxima of the keys go round through the
// cluster's shared memory, and P through device memory to all blocks at once, as the fragments that
// the tensor cores take.
#pragma once

#include "ops/cuda/attention_split_keys.cuh"
#include "ops/cuda/attention_split_weigh.cuh"

namespace di::ops::cuda::split {

/// P · V for one warpgroup's half of the block's channels.
template <int kCluster>
class Mixer {
 public:
  __device__ Mixer(Shared<kCluster>& shared, int thread)
      : shared_(shared), thread_(thread), head_(thread / 32 * 16 + thread % 32 / 4) {}

  /// The blocks of a round, `blocks` at most. What is known of the half at compile time stays out
  /// of the way of the products.
  template <int kHalf>
  __device__ void run(int round, int blocks) {
    const int count = min(blocks, kRoundBlocks);
    const uint64_t v = values_descriptor(
        shared_address(shared_.values[kHalf * kDim / kColumnBlock][0]) +
            kHalf * kDim % kColumnBlock * 2,
        sizeof(shared_.values[0])
    );
    uint2 next[kBlockGroups][2];
    float decays[2];
    const auto load = [&](int block) {
      const int group = block * kBlockGroups;
      barrier_wait(&shared_.weights_full[round][(group + kBlockGroups - 1) / kOwnGroups], 0);
#pragma unroll
      for (int step = 0; step < kBlockGroups; ++step) {
#pragma unroll
        for (int side = 0; side < 2; ++side)
          next[step][side] = shared_.weights().p[side][thread_ / 32][group + step][thread_ % 32];
      }
#pragma unroll
      for (int side = 0; side < 2; ++side)
        decays[side] = shared_.decays[block][head_ + side * 8];
    };
    load(0);
#pragma unroll
    for (int block = 0; block < kRoundBlocks; ++block) {
      if (block >= count) break;
      uint32_t p[kBlockGroups][4];
#pragma unroll
      for (int step = 0; step < kBlockGroups; ++step) {
        p[step][0] = next[step][0].x;
        p[step][1] = next[step][1].x;
        p[step][2] = next[step][0].y;
        p[step][3] = next[step][1].y;
      }
      const bool first = round == 0 && block == 0;
      if (!first) decay(decays[0], decays[1]);
      hold_registers(sums_);
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kBlockGroups; ++step) {
        const uint64_t rows = v + (block * kBlockGroups + step) * kValuesStep;
        wgmma_values<kDim>(sums_, p[step], rows, !first || step);
      }
      wgmma_commit();
      if (block + 1 < kRoundBlocks && block + 1 < count) load(block + 1);
      wgmma_wait<0>();
      hold_registers(sums_);
#pragma unroll
      for (auto& fragment : p)
        hold_registers(fragment);  // read until here
    }
    barrier_arrive(&shared_.weights_read[round]);
  }

  __device__ void store(const AttentionCall& call, int row, int channel) const {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int head = head_ + side * 8;
      if (head >= call.heads) break;
      bf16* o = call.o + (static_cast<int64_t>(row) * call.heads + head) * kTileDim + channel +
                thread_ % 4 * kVector;
#pragma unroll
      for (int piece = 0; piece < kDim / kPieceDim; ++piece) {
        store_vector(
            o + piece * kPieceDim,
            output_vector(sums_ + piece * 16, side * 2, shared_.inverse[head])
        );
      }
    }
  }

  static constexpr int kDim = Shared<kCluster>::kOwnDim / 2;  // channels of a warpgroup

 private:
  static constexpr int kRoundBlocks = Shared<kCluster>::kRoundBlocks;

  __device__ void decay(float upper, float lower) {
#pragma unroll
    for (int i = 0; i < kDim / 2; i += 4) {
      sums_[i] *= upper;
      sums_[i + 1] *= upper;
      sums_[i + 2] *= lower;
      sums_[i + 3] *= lower;
    }
  }

  Shared<kCluster>& shared_;
  int thread_;
  int head_;
  float sums_[kDim / 2];
};

/// Decays of a round's blocks, by four threads a head; returns the running maximum, which was `top`
/// before.
template <int kCluster>
__device__ inline float find_decays(
    Shared<kCluster>& shared, int round, float top, float factor, int thread
) {
  constexpr int kRoundBlocks = Shared<kCluster>::kRoundBlocks;
  const int head = thread % kTileRows;
  float tops[kRoundBlocks];
  running_maxima(shared.maxima[round], head, top, tops);
#pragma unroll
  for (int block = 0; block < kRoundBlocks; ++block) {
    if (block % 4 == thread / kTileRows)
      shared.decays[block][head] = decay_of(block > 0 ? tops[block - 1] : top, tops[block], factor);
  }
  return tops[kRoundBlocks - 1];
}

/// The mixers: the records of a round, then the block's channels of the output.
template <int kCluster>
__device__ inline void mix(
    const AttentionCall& call, Shared<kCluster>& shared, int row, int rank, int thread
) {
  constexpr int kRounds = Shared<kCluster>::kRounds;
  constexpr int kRoundBlocks = Shared<kCluster>::kRoundBlocks;
  constexpr int kTurns = ValueCells<kCluster>::kTurns;
  const float factor = exponent_factor(call.scale);
  Keys<kCluster> keys(shared, rank, thread);
  ValueCells<kCluster> cells(shared, rank, thread);
  int32_t entries[kRounds];
  int32_t cell_entries[kTurns];
#pragma unroll
  for (int i = 0; i < kRounds; ++i)
    entries[i] = early_entry(call, row, keys.slot(i));
#pragma unroll
  for (int i = 0; i < kTurns; ++i)
    cell_entries[i] = early_entry(call, row, cells.slot(0, i));
  const KeyList list(call, row);
  PackedKey own[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    own[i] = list.find(keys.slot(i), entries[i]).packed();
    keys.note(i, own[i]);
  }
  keys.begin(own[0]);
  cells.find(list, 0, cell_entries);
  cluster_wait();  // the barriers of all blocks are prepared
  const int half = thread / 128;
  Mixer<kCluster> mixer(shared, thread % 128);
  const auto run = [&](int round, int blocks) {
    if (half == 0) {
      mixer.template run<0>(round, blocks);
    } else {
      mixer.template run<1>(round, blocks);
    }
  };
  float top = kLowestTop;
  int blocks = 1;
#pragma unroll 1
  for (int round = 0; round < kRounds && round * kRoundBlocks < blocks; ++round) {
    keys.finish(round);
    if (round == 0 && thread / 32 == kMixers / 32 - 1) publish_last(shared, rank, thread % 32);
    if (round > 0) run(round - 1, blocks - (round - 1) * kRoundBlocks);
    cluster_arrive_relaxed();  // behind the last use of the place of P
    if (round > 0) named_barrier(kMixersMeet, kMixers);
    cells.begin();
    cells.finish();
    cluster_wait();
    barrier_wait(&shared.maxima_full[round], 0);
    blocks = shared.blocks();
    top = find_decays(shared, round, top, factor, thread);
    named_barrier(kMixersMeet, kMixers);
    if (round + 1 < kRounds && (round + 1) * kRoundBlocks < blocks) {
      keys.begin(own[kRounds - 1]);
#pragma unroll
      for (int i = 0; i < kTurns; ++i)
        cell_entries[i] = early_entry(call, row, cells.slot(round + 1, i));
      cells.find(list, round + 1, cell_entries);
    } else {
      run(round, blocks - round * kRoundBlocks);
    }
  }
  barrier_wait(&shared.inverse_full, 0);
  mixer.store(call, row, rank * Shared<kCluster>::kOwnDim + half * mixer.kDim);
}

/// Asks for what the list begins with, so that its pages' addresses are known. Reads nothing.
__device__ inline void warm_row(const AttentionCall& call, int row) {
  const auto prefetch = [](const void* from) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
  };
  prefetch(call.sequence_of + row);
  prefetch(call.positions + row);
  prefetch(call.sequences);
  prefetch(call.q + static_cast<int64_t>(row) * call.heads * kTileDim);
  if (call.num_selected > 0)
    prefetch(call.selected + static_cast<int64_t>(row) * call.num_selected);
}

/// Grid: rows · kCluster, in clusters. `scratch`: one a row.
template <int kCluster>
__global__ void __launch_bounds__(kThreads, 1)
    attention(const __grid_constant__ AttentionCall call, RowWeights* scratch) {
  extern __shared__ unsigned char memory[];
  auto& shared =
      *reinterpret_cast<Shared<kCluster>*>(memory + (1024 - shared_address(memory) % 1024) % 1024);
  const int row = static_cast<int>(blockIdx.x) / kCluster;
  const int rank = static_cast<int>(blockIdx.x) % kCluster;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  if (threadIdx.x == 0) initialise(shared);
  __syncwarp();
  cluster_arrive_relaxed();
  if (threadIdx.x == 0) warm_row(call, row);
  __syncwarp();
  wait_for_previous_kernels();
  let_next_kernel_start();
  switch (threadIdx.x / 128) {
    case 0: weigh<0>(call, shared, row, rank, thread, scratch[row]); break;
    case 1: weigh<1>(call, shared, row, rank, thread, scratch[row]); break;
    default: mix(call, shared, row, rank, static_cast<int>(threadIdx.x) - kWeighers);
  }
}

}  // namespace di::ops::cuda::split
