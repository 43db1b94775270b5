// What the warpgroups of attention_split.cuh share: sizes, shared memory with its barriers, and how
// the blocks of a cluster send each other what they have found.
#pragma once

#include "ops/cuda/attention_softmax.cuh"

namespace di::ops::cuda::split {

inline constexpr int kWeighers = 256;  // two warpgroups for queries, logits and weights,
inline constexpr int kMixers = 256;    // two for keys, values and outputs
inline constexpr int kThreads = kWeighers + kMixers;
inline constexpr int kOwnKeys = 80;  // of a block in a round
inline constexpr int kOwnGroups = kOwnKeys / kGroupKeys;
inline constexpr int kMaxKeys = 640;
inline constexpr int kBlockGroups = kBlockKeys / kGroupKeys;
inline constexpr int kColumns = kTileDim / kColumnBlock;
inline constexpr int kColumnBytes = kOwnKeys * 128;  // own keys of a column

/// What a weighing warp leaves of a block's own keys, for the eight heads that it weighs.
struct WarpWeights {
  uint2 p[kOwnGroups][32];    // two words of the threads' A fragments
  float sums[kOwnGroups][8];  // of the groups
};
/// The same of all: for each side of the fragments, heads r and r + 8, four warps.
using OwnWeights = WarpWeights[2][4];
/// Those of a row, of all blocks and rounds.
using RowWeights = OwnWeights[kMaxKeys / kOwnKeys];

/// All blocks' weights of a round, in the order of keys.
template <int kCluster>
struct Weights {
  uint2 p[2][4][kCluster * kOwnGroups][32];
  float sums[2][4][kCluster * kOwnGroups][8];
};

/// The logits of half of the channels that a weighing warpgroup gives the other one.
using Given = float4[2][kOwnGroups][128];

/// A cluster of kCluster blocks, each with as much shared memory as there is, takes a row's keys in
/// rounds.
template <int kCluster>
struct Shared {
  static constexpr int kRoundKeys = kCluster * kOwnKeys;
  static constexpr int kRoundBlocks = kRoundKeys / kBlockKeys;
  static constexpr int kRounds = kMaxKeys / kRoundKeys;
  static constexpr int kOwnDim = kTileDim / kCluster;
  static constexpr int kOwnColumns = kOwnDim / kColumnBlock;
  static constexpr int kKeysBytes = kColumns * kColumnBytes;
  static constexpr int kWeightsBytes = static_cast<int>(sizeof(Weights<kCluster>));
  /// P takes the place of the keys when there is but one round. Who writes there waits for the
  /// cluster.
  static constexpr int kWeightsPlace = kRounds == 1 ? 0 : kKeysBytes;
  static constexpr int kPlaces =
      kKeysBytes + (kRounds == 1 ? static_cast<int>(sizeof(Given)) : kWeightsBytes);
  static_assert(kRoundKeys % kBlockKeys == 0 && kWeightsPlace + kWeightsBytes <= kPlaces);
  static_assert(kKeysBytes + static_cast<int>(sizeof(Given)) <= kPlaces);

  unsigned char places[(kPlaces + 1023) / 1024 * 1024];
  unsigned char values[kOwnColumns][kCluster][kColumnBytes];  // the block's channels of all keys
  float2 maxima[kRounds][kCluster][kTileRows];  // of each block's keys in its first and second 64
  int last[kCluster];                           // slots up to each block's last used one
  PackedKey list[kMixers / 32][32];
  uint8_t used[kRounds][kOwnKeys / 8];
  float decays[kRoundBlocks][kTileRows];  // what a block of 64 keys leaves of sums before it
  float inverse[kTileRows];
  uint64_t keys_full[kRounds][2];  // halves of the own keys, by channels
  uint64_t maxima_full[kRounds];
  uint64_t weights_full[kRounds][kCluster];
  uint64_t sums_full[kRounds];
  uint64_t weights_read[kRounds];
  uint64_t inverse_full;

  __device__ unsigned char* keys(int column) { return places + column * kColumnBytes; }
  /// Overwritten when weights arrive.
  __device__ Given& given() { return *reinterpret_cast<Given*>(places + kKeysBytes); }
  __device__ Weights<kCluster>& weights() {
    return *reinterpret_cast<Weights<kCluster>*>(places + kWeightsPlace);
  }
  /// List slots up to the last used one, once the first maxima are there.
  __device__ int slots() const {
    int slots = 0;
#pragma unroll
    for (const int of_block : last)
      slots = max(slots, of_block);
    return slots;
  }
  /// Blocks of 64 slots; an empty list is one without keys.
  __device__ int blocks() const {
    return max((slots() + kBlockKeys - 1) / kBlockKeys, 1);
  }
};

/// Named barriers: the weighers; the mixers.
inline constexpr int kWeighersMeet = 1;
inline constexpr int kMixersMeet = 2;

/// Makes this thread's writes to device memory visible to copies.
__device__ inline void fence_async_proxy_everywhere() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

/// Prepares the barriers, and announces what the cluster's blocks will send.
template <int kCluster>
__device__ inline void initialise(Shared<kCluster>& shared) {
  for (int round = 0; round < Shared<kCluster>::kRounds; ++round) {
    for (uint64_t& barrier : shared.keys_full[round])
      barrier_init(&barrier, kOwnKeys / 8);
    barrier_init(&shared.maxima_full[round], 1);
    for (uint64_t& barrier : shared.weights_full[round])
      barrier_init(&barrier, 1);
    barrier_init(&shared.sums_full[round], 1);
    barrier_init(&shared.weights_read[round], kMixers + kTileRows);
  }
  barrier_init(&shared.inverse_full, kTileRows);
  barrier_init_fence();
  for (int round = 0; round < Shared<kCluster>::kRounds; ++round) {
    barrier_expect(
        &shared.maxima_full[round],
        sizeof(shared.maxima[0]) + (round == 0 ? sizeof(shared.last) : 0)
    );
    for (uint64_t& barrier : shared.weights_full[round])
      barrier_expect(&barrier, sizeof(shared.weights().p) / kCluster);
    barrier_expect(&shared.sums_full[round], sizeof(shared.weights().sums));
  }
}

/// The address in block `rank` of what lies at `own` here.
__device__ inline uint32_t address_in(const void* own, int rank) {
  uint32_t address = 0;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(shared_address(own)), "r"(rank));
  return address;
}

/// Copies `bytes` of device memory to the same place of every block of the cluster, whose barriers
/// hear of them.
template <int kCluster>
__device__ inline void send_to_all(
    const void* to, const void* from, int bytes, const uint64_t* barrier
) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from),
      "r"(bytes),
      "r"(shared_address(barrier)),
      "h"(static_cast<uint16_t>((1 << kCluster) - 1))
      : "memory"
  );
}

/// Sends values to the place of `to` in block `rank`, whose `barrier` hears of them.
__device__ inline void send(const float2* to, float2 x, const uint64_t* barrier, int rank) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          address_in(to, rank)
      ),
      "f"(x.x),
      "f"(x.y),
      "r"(address_in(barrier, rank))
      : "memory"
  );
}
__device__ inline void send(const int* to, int x, const uint64_t* barrier, int rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.s32 [%0], %1, [%2];" ::"r"(
                   address_in(to, rank)
               ),
               "r"(x),
               "r"(address_in(barrier, rank))
               : "memory");
}

/// The first of the two blocks of 64 keys of a round in which a block's own keys lie, and how many
/// of its groups do.
__device__ inline constexpr int first_block(int rank) {
  return rank * kOwnGroups / kBlockGroups;
}
__device__ inline constexpr int groups_of_first(int rank) {
  return kBlockGroups - rank * kOwnGroups % kBlockGroups;
}

/// Running maxima of a head: tops[b] after block b of a round, which begins with `top`.
template <int kCluster>
__device__ inline void running_maxima(
    const float2 (&maxima)[kCluster][kTileRows],
    int head,
    float top,
    float (&tops)[Shared<kCluster>::kRoundBlocks]
) {
#pragma unroll
  for (int rank = 0; rank < kCluster; ++rank) {
    const float2 own = maxima[rank][head];
    top = fmaxf(top, own.x);
    tops[first_block(rank)] = top;
    top = fmaxf(top, own.y);
    tops[first_block(rank) + 1] = top;  // complete behind the next rank, if that shares it
  }
}

}  // namespace di::ops::cuda::split
