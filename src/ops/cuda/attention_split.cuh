// Sparse attention of few rows with the bits of attention_rows.cuh: a cluster of eight blocks takes
// one row. For the logits they share the keys, for the values the output channels, so each
// element's chain of sums runs in one place and in order, and no partial sums travel.
//
// Half of a block's warps bring the queries and its own keys, the other half its channels of all
// keys. Then the maxima of every 16 keys go round, so that all know the running maxima of the
// blocks of 64 keys, and P goes round through device memory as the fragments that the tensor cores
// take.
#pragma once

#include "ops/cuda/attention_softmax.cuh"

namespace di::ops::cuda::split {

inline constexpr int kCluster = 8;
inline constexpr int kKeyThreads = 256;    // two warpgroups for queries and keys,
inline constexpr int kValueThreads = 256;  // two for values and outputs
inline constexpr int kThreads = kKeyThreads + kValueThreads;
inline constexpr int kOwnKeys = 80;
inline constexpr int kOwnGroups = kOwnKeys / kGroupKeys;
inline constexpr int kMaxKeys = kCluster * kOwnKeys;
inline constexpr int kGroups = kMaxKeys / kGroupKeys;
inline constexpr int kBlocks = kMaxKeys / kBlockKeys;
inline constexpr int kChunkBlocks = 4;  // blocks whose P is waited for together
inline constexpr int kChunks = (kBlocks + kChunkBlocks - 1) / kChunkBlocks;
inline constexpr int kOwnDim = kTileDim / kCluster;  // channels of a block's values
inline constexpr int kColumnBytes = kOwnKeys * 128;
inline constexpr int kValueBytes = kBlockKeys * kOwnDim * 2;

/// P of one row: for every 16 keys the A fragments of a warpgroup's threads.
using Weights = uint4[kGroups][128];

/// What comes after the logits in the place of the queries.
struct Softmax {
  float maxima[kGroups][kTileRows];
  float sums[kGroups][kTileRows];  // written by the blocks that have the keys
  float tops[kBlocks][kTileRows];
  float decays[kBlocks][kTileRows];
  float inverse[kTileRows];
};

struct Shared {
  union {
    unsigned char q[kTileBytes];
    Softmax softmax;
  };
  union {
    unsigned char keys[kTileDim / kColumnBlock][kColumnBytes];
    Weights weights;  // after the logits
  };
  unsigned char values[kBlocks][kValueBytes];
  PackedKey list[kOwnKeys];
  float own_maxima[kOwnGroups][kTileRows];  // read by the other blocks
  int warp_slots[kValueThreads / 32];       // up to the last used one that a warp saw
  uint64_t weights_full[kChunks];
  uint64_t inverse_full;
};

inline constexpr int kSharedBytes = static_cast<int>(sizeof(Shared)) + 1024;

__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Four floats of block `rank`'s shared memory, at the place of `own` in ours.
__device__ inline float4 read_remote(const float* own, int rank) {
  float4 x;
  asm volatile(
      "{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [a];\n}\n"
      : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
      : "r"(shared_address(own)), "r"(rank)
      : "memory"
  );
  return x;
}

/// Writes a float at the place of `own` in block `rank`'s shared memory.
__device__ inline void write_remote(const float* own, int rank, float x) {
  asm volatile(
      "{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %0, %1;\n"
      "st.shared::cluster.f32 [a], %2;\n}\n" ::"r"(shared_address(own)),
      "r"(rank),
      "f"(x)
      : "memory"
  );
}

/// All threads of all blocks of a row meet.
__device__ inline void meet() {
  cluster_arrive();
  cluster_wait();
}

/// Collects the maxima of all groups, by the key threads.
__device__ inline void gather_maxima(Shared& shared, int thread) {
  constexpr int kVectors = kOwnGroups * kTileRows / 4;  // of a block
  float* all = &shared.softmax.maxima[0][0];
#pragma unroll
  for (int first = 0; first < kCluster * kVectors; first += kKeyThreads) {
    const int i = first + thread;
    if (i >= kCluster * kVectors) break;
    *reinterpret_cast<float4*>(all + i * 4) =
        read_remote(&shared.own_maxima[0][0] + i % kVectors * 4, i / kVectors);
  }
}

/// Tells all blocks the sum of p over group `place` of all; four lanes of a head call it.
__device__ inline void publish_sum(Softmax& softmax, int place, int head, int lane, float sum) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
    write_remote(&softmax.sums[place][head], lane % 4 * 2 + i, sum);
}

/// Asks the second-level cache for a row's selected entries, whose place in the list is not known
/// yet.
__device__ inline void prefetch_selected(const AttentionCall& call, int row, int thread) {
  const int32_t* selected = call.selected + static_cast<int64_t>(row) * call.num_selected;
  if (thread * 32 < call.num_selected)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(selected + thread * 32));
}

/// Brings the queries and the block's own keys, kOwnKeys · rank and on, by the key threads.
class Keys {
 public:
  __device__ Keys(const AttentionCall& call, Shared& shared, int thread)
      : call_(call),
        shared_(shared),
        warp_(thread / 32),
        lane_(thread % 32),
        queries_(shared.q, warp_, lane_) {}

  /// The list is complete after a barrier of all threads.
  __device__ void find(int row, int rank) const {
    queries_.begin(call_.q + static_cast<int64_t>(row) * call_.heads * kTileDim, call_.heads);
    commit_copies();
    const int place = warp_ * 32 + lane_;
    if (place >= 96) return;
    Key key[1];
    KeyList(call_, row).find(place < kOwnKeys ? rank * kOwnKeys + place : kMaxKeys, 0, key);
    if (place < kOwnKeys) shared_.list[place] = key[0].packed();
  }

  __device__ void load() const {
    const CellCopies<kColumnBytes> copies(lane_);
#pragma unroll 1
    for (int i = 0; i < kRounds; ++i) {
      const int unit = i * kWarps + warp_;
      if (unit < kUnits) copies.begin(shared_address(rows_of(unit)), keys_of(unit), unit % 2);
    }
    commit_copies();
    wait_for_copies<1>();
    queries_.permute();
    wait_for_copies<0>();
    __syncwarp();
#pragma unroll 1
    for (int i = 0; i < kRounds; ++i) {
      const int unit = i * kWarps + warp_;
      if (unit >= kUnits) break;
      const int column = lane_ / 8;
      unpack_cell(
          rows_of(unit) + column * kColumnBytes,
          lane_,
          column_of(unit) + column,
          is_fp8(keys_of(unit)[lane_ % 8])
      );
    }
    fence_async_proxy();
  }

 private:
  static constexpr int kWarps = kKeyThreads / 32;
  static constexpr int kUnits = kOwnKeys / 8 * 2;  // eight keys in four columns
  static constexpr int kRounds = (kUnits + kWarps - 1) / kWarps;

  __device__ static int column_of(int unit) {
    return unit % 2 * 4;
  }
  __device__ unsigned char* rows_of(int unit) const {
    return shared_.keys[column_of(unit)] + unit / 2 * 8 * 128;
  }
  __device__ const PackedKey* keys_of(int unit) const {
    return shared_.list + unit / 2 * 8;
  }

  const AttentionCall& call_;
  Shared& shared_;
  int warp_;
  int lane_;
  Queries<kWarps> queries_;
};

/// Brings the block's channels of all keys, by the value threads, each of which takes whole cells.
class ValueCells {
 public:
  __device__ ValueCells(Shared& shared, int rank, int thread)
      : shared_(shared), rank_(rank), thread_(thread) {}

  /// Starts the copies, and says how far this warp's keys reach.
  __device__ void begin(const AttentionCall& call, int row) {
    Key keys[kRounds];
    KeyList(call, row).find(thread_, kValueThreads, keys);
    int last = 0;
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int slot = i * kValueThreads + thread_;
      if (slot >= kMaxKeys) break;  // the whole warp
      fetch(slot, keys[i]);
      if (keys[i].fp8) formats_ |= 1u << i;
      if (keys[i].record != nullptr) last = slot + 1;
    }
    commit_copies();
    last = __reduce_max_sync(0xffffffffu, last);
    if (thread_ % 32 == 0) shared_.warp_slots[thread_ / 32] = last;
  }

  __device__ void finish() const {
    wait_for_copies<0>();
#pragma unroll 1
    for (int i = 0; i < kRounds; ++i) {
      const int slot = i * kValueThreads + thread_;
      if (slot >= kMaxKeys) break;
      unpack_cell(rows_of(slot), thread_ % 32, rank_, (formats_ >> i & 1) != 0);
    }
    fence_async_proxy();
  }

 private:
  static constexpr int kRounds = (kMaxKeys + kValueThreads - 1) / kValueThreads;

  /// The eight rows that hold a slot's.
  __device__ unsigned char* rows_of(int slot) const {
    return shared_.values[slot / kBlockKeys] + slot % kBlockKeys / 8 * 8 * 128;
  }

  __device__ void fetch(int slot, const Key& key) const {
    unsigned char* rows = rows_of(slot);
    const bool real = key.record != nullptr;
    const uint8_t* codes = key.record + rank_ * (key.fp8 ? 64 : 32);
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      if (part >= 2 && !key.fp8) break;
      const int chunk = codes_chunk(thread_ % 32 / 8, key.fp8, part);
      copy_async<16>(rows + swizzled_offset(slot % 8, chunk), codes + part * 16, real);
    }
    const int scales = key.fp8 ? kTileDim + rank_ / 2 * 4 : kTileDim / 2 + rank_ * 4;
    copy_async<4>(rows + scales_offset(thread_ % 32, key.fp8), key.record + scales, real);
  }

  Shared& shared_;
  int rank_;
  int thread_;
  uint32_t formats_ = 0;  // bit i: the key of round i is FP8
};

/// Logits of the block's keys, by one warpgroup: 64 heads by 80 keys, unused slots removed; and the
/// maxima of the groups. The halves of the channels are chains of their own.
__device__ inline void own_logits(Shared& shared, int thread, float (&s)[40]) {
  const uint64_t q = b_descriptor(shared_address(shared.q), 0);
  const uint64_t keys = b_descriptor(shared_address(shared.keys), 0);
  float right[40];
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 32; ++step) {
    wgmma_logits<80>(
        step < 16 ? s : right,
        q + (step / 4 * (kTileBytes / 8) + step % 4 * 32) / 16,
        keys + (step / 4 * kColumnBytes + step % 4 * 32) / 16,
        step % 16
    );
  }
  wgmma_commit();
  wgmma_wait<0>();
  hold_registers(s);
  hold_registers(right);
#pragma unroll
  for (int i = 0; i < 40; ++i)
    s[i] += right[i];
  const int lane = thread % 32;
  const int head = thread / 32 * 16 + lane / 4;
  uint32_t used[3];
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const int key = i * 32 + lane;
    used[i] =
        __ballot_sync(0xffffffffu, key < kOwnKeys && shared.list[min(key, kOwnKeys - 1)] != 0);
  }
#pragma unroll
  for (int group = 0; group < kOwnGroups; ++group) {
    mask_group(s + 8 * group, used[group / 2] >> (group % 2 * 16), lane);
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const float* x = s + 8 * group + 2 * side;
      const float highest = max_over_row(fmaxf(fmaxf(x[0], x[1]), fmaxf(x[4], x[5])));
      if (lane % 4 == 0) shared.own_maxima[group][head + side * 8] = highest;
    }
  }
}

/// List slots up to the last used one.
__device__ inline int slots_of(const Shared& shared) {
  int slots = 0;
#pragma unroll
  for (const int last : shared.warp_slots)
    slots = max(slots, last);
  return slots;
}

/// Blocks of the list; an empty one is one block without keys.
__device__ inline int blocks_of(const Shared& shared) {
  return max((slots_of(shared) + kBlockKeys - 1) / kBlockKeys, 1);
}

/// Largest logit of four groups.
__device__ inline float block_maximum(const Softmax& softmax, int group, int head) {
  return fmaxf(
      fmaxf(softmax.maxima[group][head], softmax.maxima[group + 1][head]),
      fmaxf(softmax.maxima[group + 2][head], softmax.maxima[group + 3][head])
  );
}

/// Running maxima of the blocks and what each leaves of the sums before it, by the key threads:
/// each pair of a block and a head is found by itself.
__device__ inline void running_maxima(Softmax& softmax, int blocks, float factor, int thread) {
  for (int pair = thread; pair < blocks * kTileRows; pair += kKeyThreads) {
    const int block = pair / kTileRows;
    const int head = pair % kTileRows;
    float before = kLowestTop;
    for (int group = 0; group < 4 * block; group += 4)
      before = fmaxf(before, block_maximum(softmax, group, head));
    const float after = fmaxf(before, block_maximum(softmax, 4 * block, head));
    softmax.tops[block][head] = after;
    softmax.decays[block][head] = decay_of(before, after, factor);
  }
}

/// P of the block's keys to device memory, sums of the groups to all blocks.
__device__ inline void own_weights(
    Softmax& softmax,
    const float (&s)[40],
    int rank,
    int blocks,
    float factor,
    int thread,
    Weights& out
) {
  const int lane = thread % 32;
  const int head = thread / 32 * 16 + lane / 4;
  float sums[kOwnGroups][2] = {};
#pragma unroll
  for (int group = 0; group < kOwnGroups; ++group) {
    const int place = rank * kOwnGroups + group;
    if (place / 4 >= blocks) break;
    uint32_t p[4];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const float top = softmax.tops[place / 4][head + side * 8];
      sums[group][side] = weigh_group(s + 8 * group, side, top, factor, p);
    }
    out[place][thread] = make_uint4(p[0], p[1], p[2], p[3]);
  }
  // All groups side by side: the lanes' exchanges are what takes time.
#pragma unroll
  for (const int distance : {1, 2}) {
#pragma unroll
    for (auto& group : sums) {
#pragma unroll
      for (float& sum : group)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
  }
#pragma unroll
  for (int group = 0; group < kOwnGroups; ++group) {
    const int place = rank * kOwnGroups + group;
    if (place / 4 >= blocks) break;
#pragma unroll
    for (int side = 0; side < 2; ++side)
      publish_sum(softmax, place, head + side * 8, lane, sums[group][side]);
  }
}

/// 1 / denominator of every head, times what the tiles' shift takes; a thread a head.
__device__ inline void finish_sums(
    Shared& shared, const AttentionCall& call, int slots, int blocks, float factor, int head
) {
  Softmax& softmax = shared.softmax;
  float denominator = 0;
  for (int block = 0; block < blocks; ++block) {
    const float sum = block_sum(
        softmax.sums[4 * block][head],
        softmax.sums[4 * block + 1][head],
        softmax.sums[4 * block + 2][head],
        softmax.sums[4 * block + 3][head]
    );
    denominator = denominator * softmax.decays[block][head] + sum;
  }
  const float sink = head < call.heads ? call.sink[head] : 0.0f;
  denominator += sink_weight(sink, softmax.tops[blocks - 1][head], factor);
  softmax.inverse[head] = slots == 0 ? 0.0f : static_cast<float>(1 << kKeyShift) / denominator;
  barrier_arrive(&shared.inverse_full);
}

/// Starts to copy P of all keys, by all threads.
__device__ inline void fetch_weights(Shared& shared, const Weights& weights, int blocks) {
  static_assert(kThreads == 4 * 128);  // one copy each for a block
  for (int block = 0; block < blocks; ++block) {
    const auto place = static_cast<int>(threadIdx.x);
    copy_async<16>(
        reinterpret_cast<unsigned char*>(&shared.weights[4 * block][0] + place),
        &weights[4 * block][0] + place,
        true
    );
    if (block % kChunkBlocks == kChunkBlocks - 1 || block + 1 == blocks)
      barrier_arrive_after_copies(&shared.weights_full[block / kChunkBlocks]);
  }
}

/// P · V over all blocks for the 32 channels of one warpgroup.
__device__ inline void mix_values(
    Shared& shared, int blocks, int half, int thread, float (&sums)[16]
) {
  const int head = thread / 32 * 16 + thread % 32 / 4;
  const uint64_t v = values_descriptor(
      shared_address(shared.values) + static_cast<uint32_t>(half) * 64, kValueBytes
  );
  uint4 next[4];
  float decays[2];
  const auto load = [&](int block) {
    if (block % kChunkBlocks == 0) barrier_wait(&shared.weights_full[block / kChunkBlocks], 0);
#pragma unroll
    for (int step = 0; step < 4; ++step)
      next[step] = shared.weights[4 * block + step][thread];
    decays[0] = shared.softmax.decays[block][head];
    decays[1] = shared.softmax.decays[block][head + 8];
  };
  load(0);
#pragma unroll 1
  for (int block = 0; block < blocks; ++block) {
    uint32_t p[4][4];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      p[step][0] = next[step].x;
      p[step][1] = next[step].y;
      p[step][2] = next[step].z;
      p[step][3] = next[step].w;
    }
    if (block > 0) {
#pragma unroll
      for (int i = 0; i < 16; i += 4) {
        sums[i] *= decays[0];
        sums[i + 1] *= decays[0];
        sums[i + 2] *= decays[1];
        sums[i + 3] *= decays[1];
      }
    }
    hold_registers(sums);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      wgmma_values<32>(
          sums, p[step], v + block * (kValueBytes / 16) + step * kValuesStep, block + step
      );
    }
    wgmma_commit();
    if (block + 1 < blocks) load(block + 1);
    wgmma_wait<0>();
    hold_registers(sums);
  }
}

/// The queries' and keys' half of a block, up to P and the sums of p.
__device__ inline void weigh(
    const AttentionCall& call, Shared& shared, int row, int rank, int thread, Weights& weights
) {
  const Keys keys(call, shared, thread);
  keys.find(row, rank);
  __syncthreads();
  keys.load();
  named_barrier(1, kKeyThreads);
  const bool logits = thread < 128;
  float s[40];
  if (logits) own_logits(shared, thread, s);
  meet();
  const float factor = exponent_factor(call.scale);
  const int blocks = blocks_of(shared);
  gather_maxima(shared, thread);
  named_barrier(1, kKeyThreads);
  running_maxima(shared.softmax, blocks, factor, thread);
  named_barrier(1, kKeyThreads);
  if (logits) own_weights(shared.softmax, s, rank, blocks, factor, thread, weights);
  meet();
}

/// The values' half of a block; the other half calls it too, for the copies of P and the
/// denominators.
__device__ inline void mix(
    const AttentionCall& call, Shared& shared, int row, int rank, const Weights& weights
) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int head = thread / 32 * 16 + thread % 32 / 4;
  const int half = (static_cast<int>(threadIdx.x) - kKeyThreads) / 128;
  const bool mixes = threadIdx.x >= kKeyThreads;
  const int blocks = blocks_of(shared);
  fetch_weights(shared, weights, blocks);
  float sums[16];
  if (mixes) {
    mix_values(shared, blocks, half, thread, sums);
  } else if (threadIdx.x < kTileRows) {
    const float factor = exponent_factor(call.scale);
    finish_sums(shared, call, slots_of(shared), blocks, factor, thread);
  }
  if (!mixes) return;
  barrier_wait(&shared.inverse_full, 0);
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    if (head + side * 8 >= call.heads) break;
    bf16* o = call.o + (static_cast<int64_t>(row) * call.heads + head + side * 8) * kTileDim +
              rank * kOwnDim + half * kPieceDim + thread % 4 * kVector;
    store_vector(o, output_vector(sums, side * 2, shared.softmax.inverse[head + side * 8]));
  }
}

/// Grid: rows · kCluster. `weights`: one a row.
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    attention(const __grid_constant__ AttentionCall call, Weights* weights) {
  extern __shared__ unsigned char memory[];
  Shared& shared =
      *reinterpret_cast<Shared*>(memory + (1024 - shared_address(memory) % 1024) % 1024);
  const int row = static_cast<int>(blockIdx.x) / kCluster;
  const int rank = static_cast<int>(blockIdx.x) % kCluster;
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < kChunks) barrier_init(&shared.weights_full[thread], kThreads);
  if (thread == kChunks) barrier_init(&shared.inverse_full, kTileRows);
  wait_for_previous_kernels();
  if (thread < kKeyThreads) {
    prefetch_selected(call, row, thread);
    weigh(call, shared, row, rank, thread, weights[row]);
  } else {
    ValueCells cells(shared, rank, thread - kKeyThreads);
    cells.begin(call, row);
    __syncthreads();
    cluster_arrive();
    cells.finish();
    named_barrier(2, kValueThreads);
    cluster_wait();
    cluster_arrive();
    cluster_wait();
  }
  let_next_kernel_start();
  mix(call, shared, row, rank, weights[row]);
}

}  // namespace di::ops::cuda::split
