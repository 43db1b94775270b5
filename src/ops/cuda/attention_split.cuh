// Sparse attention of few rows with the bits of attention_rows.cuh: a cluster of eight blocks takes
// one row. For the logits they share the keys, for the values the output channels, so each
// element's chain of sums runs in one place and in order, and no partial sums travel.
//
// A block copies the records of its own keys and sends each cell to the block whose channels it
// holds, which unpacks it as values. Then the maxima of every 16 keys go round, so that all know
// the running maxima of the blocks of 64 keys, and P goes round through device memory as the
// fragments that the tensor cores take.
#pragma once

#include "ops/cuda/attention_softmax.cuh"

namespace di::ops::cuda::split {

inline constexpr int kCluster = 8;
inline constexpr int kThreads = 256;
inline constexpr int kOwnKeys = 80;
inline constexpr int kOwnGroups = kOwnKeys / kGroupKeys;
inline constexpr int kMaxKeys = kCluster * kOwnKeys;
inline constexpr int kGroups = kMaxKeys / kGroupKeys;
inline constexpr int kBlocks = kMaxKeys / kBlockKeys;
inline constexpr int kOwnDim = kTileDim / kCluster;  // channels of a block's values
inline constexpr int kColumnBytes = kOwnKeys * 128;
inline constexpr int kValueBytes = kBlockKeys * kOwnDim * 2;

/// What comes after the logits in the place of the queries.
struct Softmax {
  float maxima[kGroups][kTileRows];
  float sums[kGroups][kTileRows];
  float tops[kBlocks][kTileRows];
  float decays[kBlocks][kTileRows];
  float inverse[kTileRows];
  float own_sums[kOwnGroups][kTileRows];  // read by the other blocks
};

struct Shared {
  union {
    unsigned char q[kTileBytes];
    Softmax softmax;
  };
  unsigned char keys[kTileDim / kColumnBlock][kColumnBytes];
  unsigned char values[kBlocks][kValueBytes];
  PackedKey list[kOwnKeys];
  float own_maxima[kOwnGroups][kTileRows];  // read by the other blocks
  uint32_t slots[kCluster];                 // up to the last used one of each block
  int warp_slots[3];
};

inline constexpr int kSharedBytes = static_cast<int>(sizeof(Shared)) + 1024;

/// P of one row: for every 16 keys the A fragments of a warpgroup's threads.
using Weights = uint4[kGroups][128];

__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

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

/// Collects every block's groups of floats by heads.
__device__ inline void gather(
    const float (&own)[kOwnGroups][kTileRows], float (&all)[kGroups][kTileRows]
) {
  constexpr int kVectors = kOwnGroups * kTileRows / 4;
#pragma unroll
  for (int first = 0; first < kCluster * kVectors; first += kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    if (i >= kCluster * kVectors) break;
    const float4 x = read_remote(&own[0][0] + i % kVectors * 4, i / kVectors);
    *reinterpret_cast<float4*>(&all[0][0] + i * 4) = x;
  }
}

/// Writes 16 or 4 bytes at the place of `own` in block `rank`'s shared memory.
__device__ inline void write_remote(const void* own, int rank, const uint4& x) {
  asm volatile(
      "{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %0, %1;\n"
      "st.shared::cluster.v4.u32 [a], {%2, %3, %4, %5};\n}\n" ::"r"(shared_address(own)),
      "r"(rank),
      "r"(x.x),
      "r"(x.y),
      "r"(x.z),
      "r"(x.w)
      : "memory"
  );
}
__device__ inline void write_remote(const void* own, int rank, uint32_t x) {
  asm volatile(
      "{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %0, %1;\n"
      "st.shared::cluster.u32 [a], %2;\n}\n" ::"r"(shared_address(own)),
      "r"(rank),
      "r"(x)
      : "memory"
  );
}

/// The eight rows of values that hold slots 8 · group and on.
__device__ inline unsigned char* value_rows(Shared& shared, int group) {
  return shared.values[group / 8] + group % 8 * 8 * 128;
}

/// Finds the block's keys, kOwnKeys · rank and on, and tells all blocks how far they reach.
__device__ inline void find_keys(Shared& shared, const KeyList& list, int rank, int thread) {
  if (thread >= 96) return;
  Key key[1];
  const int slot = rank * kOwnKeys + thread;
  list.find(thread < kOwnKeys ? slot : kMaxKeys, 0, key);
  if (thread < kOwnKeys) shared.list[thread] = key[0].packed();
  const int last = key[0].record != nullptr ? slot + 1 : 0;
  shared.warp_slots[thread / 32] = __reduce_max_sync(0xffffffffu, last);
}

/// Unpacks the block's keys, and sends each cell to the block whose values it is. The caller makes
/// the keys visible to the tensor cores.
__device__ inline void load_keys(Shared& shared, int rank) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kUnits = kOwnKeys / 8 * 2;  // eight keys in four columns
  for (int unit = warp; unit < kUnits; unit += kThreads / 32) {
    unsigned char* rows = shared.keys[unit % 2 * 4] + unit / 2 * 8 * 128;
    const PackedKey key = shared.list[unit / 2 * 8 + lane % 8];
    fetch_cells(rows, kColumnBytes, key, unit % 2 * 4, lane);
  }
  commit_copies();
  wait_for_copies<0>();
  __syncwarp();
  cluster_wait();  // all blocks have begun
  for (int unit = warp; unit < kUnits; unit += kThreads / 32) {
    const int column = unit % 2 * 4 + lane / 8;
    unsigned char* rows = shared.keys[column] + unit / 2 * 8 * 128;
    const unsigned char* values = value_rows(shared, rank * (kOwnKeys / 8) + unit / 2);
    const bool fp8 = is_fp8(shared.list[unit / 2 * 8 + lane % 8]);
#pragma unroll
    for (const int chunk : {0, 1, 4, 5}) {
      if (chunk % 2 != 0 && !fp8) continue;
      const int at = swizzled_offset(lane % 8, chunk);
      write_remote(values + at, column, *reinterpret_cast<const uint4*>(rows + at));
    }
    const int at = swizzled_offset(lane % 8, 6);
    const uint32_t scales = *reinterpret_cast<const uint32_t*>(rows + at);
    write_remote(values + at, column, make_uint4(scales, fp8 ? 1 : 0, 0, 0));
    unpack_cell(rows, lane % 8, column, fp8);
  }
}

/// Unpacks the block's channels of all keys, by one warpgroup.
__device__ inline void unpack_values(Shared& shared, int rank, int thread) {
#pragma unroll 1
  for (int slot = thread; slot < kMaxKeys; slot += 128) {
    unsigned char* rows = value_rows(shared, slot / 8);
    const auto mark = *reinterpret_cast<const uint2*>(rows + swizzled_offset(slot % 8, 6));
    unpack_cell(rows, slot % 8, rank, mark.y != 0);
  }
  fence_async_proxy();
}

/// Logits of the block's keys, by one warpgroup: 64 heads by 80 keys, unused slots removed; and the
/// maxima of the groups.
__device__ inline void own_logits(Shared& shared, int thread, float (&s)[40]) {
  const uint64_t q = b_descriptor(shared_address(shared.q), 0);
  const uint64_t keys = b_descriptor(shared_address(shared.keys), 0);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 32; ++step) {
    wgmma_logits<80>(
        s,
        q + (step / 4 * (kTileBytes / 8) + step % 4 * 32) / 16,
        keys + (step / 4 * kColumnBytes + step % 4 * 32) / 16,
        step
    );
  }
  wgmma_commit();
  wgmma_wait<0>();
  hold_registers(s);
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

/// Running maxima of the blocks and what each leaves of the sums before it; a thread a head.
__device__ inline void running_maxima(Softmax& softmax, int blocks, float factor, int head) {
  float top = kLowestTop;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    if (block >= blocks) break;
    float highest = softmax.maxima[4 * block][head];
#pragma unroll
    for (int group = 1; group < 4; ++group)
      highest = fmaxf(highest, softmax.maxima[4 * block + group][head]);
    const float after = fmaxf(top, highest);
    softmax.tops[block][head] = after;
    softmax.decays[block][head] = decay_of(top, after, factor);
    top = after;
  }
}

/// P of the block's keys to device memory, sums of the groups to shared memory.
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
#pragma unroll
  for (int group = 0; group < kOwnGroups; ++group) {
    const int place = rank * kOwnGroups + group;
    if (place / 4 >= blocks) break;
    uint32_t p[4];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const float top = softmax.tops[place / 4][head + side * 8];
      float w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        w[i] = weight_of(s[8 * group + 4 * (i / 2) + 2 * side + i % 2], top, factor);
      p[side] = round_pair(w[0], w[1]);
      p[side + 2] = round_pair(w[2], w[3]);
      const float sum = group_sum(w[0], w[1], w[2], w[3]);
      if (lane % 4 == 0) softmax.own_sums[group][head + side * 8] = sum;
    }
    out[place][thread] = make_uint4(p[0], p[1], p[2], p[3]);
  }
}

/// 1 / denominator of every head, times what the tiles' shift takes; a thread a head.
__device__ inline void finish_sums(
    Softmax& softmax, const AttentionCall& call, int slots, int blocks, float factor, int head
) {
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
}

/// P · V over all blocks for the 32 channels of one warpgroup.
__device__ inline void mix_values(
    const Shared& shared,
    const Weights& weights,
    int blocks,
    int half,
    int thread,
    float (&sums)[16]
) {
  const int head = thread / 32 * 16 + thread % 32 / 4;
  const uint64_t v = values_descriptor(
      shared_address(shared.values) + static_cast<uint32_t>(half) * 64, kValueBytes
  );
  uint4 next[4];
#pragma unroll
  for (int step = 0; step < 4; ++step)
    next[step] = weights[step][thread];
#pragma unroll 2
  for (int block = 0; block < blocks; ++block) {
    uint32_t p[4][4];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      p[step][0] = next[step].x;
      p[step][1] = next[step].y;
      p[step][2] = next[step].z;
      p[step][3] = next[step].w;
    }
    if (block + 1 < blocks) {
#pragma unroll
      for (int step = 0; step < 4; ++step)
        next[step] = weights[4 * block + 4 + step][thread];
    }
    if (block > 0) {
      const float upper = shared.softmax.decays[block][head];
      const float lower = shared.softmax.decays[block][head + 8];
#pragma unroll
      for (int i = 0; i < 16; i += 4) {
        sums[i] *= upper;
        sums[i + 1] *= upper;
        sums[i + 2] *= lower;
        sums[i + 3] *= lower;
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
    wgmma_wait<0>();
    hold_registers(sums);
  }
}

/// Grid: rows · kCluster. `weights`: one Weights a row.
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    attention(const __grid_constant__ AttentionCall call, Weights* weights) {
  extern __shared__ unsigned char memory[];
  Shared& shared =
      *reinterpret_cast<Shared*>(memory + (1024 - shared_address(memory) % 1024) % 1024);
  const int row = static_cast<int>(blockIdx.x) / kCluster;
  const auto rank = static_cast<int>(cluster_rank());
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int head = thread / 32 * 16 + thread % 32 / 4;
  const float factor = exponent_factor(call.scale);
  const Queries<kThreads / 32> queries(
      shared.q, static_cast<int>(threadIdx.x) / 32, static_cast<int>(threadIdx.x) % 32
  );
  queries.begin(call.q + static_cast<int64_t>(row) * call.heads * kTileDim, call.heads);
  cluster_arrive();
  float s[40];
  find_keys(shared, KeyList(call, row), rank, static_cast<int>(threadIdx.x));
  __syncthreads();
  load_keys(shared, rank);
  if (threadIdx.x < kCluster) {
    const int slots = max(shared.warp_slots[0], max(shared.warp_slots[1], shared.warp_slots[2]));
    write_remote(&shared.slots[rank], static_cast<int>(threadIdx.x), static_cast<uint32_t>(slots));
  }
  queries.finish();
  cluster_arrive();
  __syncthreads();
  if (group == 0) own_logits(shared, thread, s);
  cluster_wait();  // all cells have arrived
  if (group != 0) unpack_values(shared, rank, thread);
  cluster_arrive();
  cluster_wait();
  gather(shared.own_maxima, shared.softmax.maxima);
  int slots = 0;
#pragma unroll
  for (int block = 0; block < kCluster; ++block)
    slots = max(slots, static_cast<int>(shared.slots[block]));
  const int blocks = max((slots + kBlockKeys - 1) / kBlockKeys, 1);
  __syncthreads();
  if (threadIdx.x < kTileRows)
    running_maxima(shared.softmax, blocks, factor, static_cast<int>(threadIdx.x));
  __syncthreads();
  if (group == 0) own_weights(shared.softmax, s, rank, blocks, factor, thread, weights[row]);
  cluster_arrive();
  cluster_wait();
  gather(shared.softmax.own_sums, shared.softmax.sums);
  cluster_arrive();  // nobody leaves before all have read
  float sums[16];
  mix_values(shared, weights[row], blocks, group, thread, sums);
  __syncthreads();
  if (threadIdx.x < kTileRows)
    finish_sums(shared.softmax, call, slots, blocks, factor, static_cast<int>(threadIdx.x));
  __syncthreads();
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    if (head + side * 8 >= call.heads) break;
    bf16* o = call.o + (static_cast<int64_t>(row) * call.heads + head + side * 8) * kTileDim +
              rank * kOwnDim + group * kPieceDim + thread % 4 * kVector;
    store_vector(o, output_vector(sums, side * 2, shared.softmax.inverse[head + side * 8]));
  }
  cluster_wait();
}

}  // namespace di::ops::cuda::split
