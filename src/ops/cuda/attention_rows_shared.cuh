// What the warpgroups of attention_rows.cuh share: sizes, shared memory with its barriers, and the
// lists of the row under way and the next.
#pragma once

#include "ops/cuda/attention_softmax.cuh"

namespace di::ops::cuda::rows {

inline constexpr int kProducerWarps = 4;
inline constexpr int kMixers = 256;  // threads that multiply with V
inline constexpr int kThreads = 512;
inline constexpr int kProducerRegisters = 96;  // together 512 for each of 128 threads
inline constexpr int kWeigherRegisters = 96;
inline constexpr int kLeftRegisters = 160;
inline constexpr int kRightRegisters = 160;
inline constexpr int kStages = 2;
inline constexpr int kHalfBytes = kTileBytes / 2;
inline constexpr int kColumnBytes = kTileBytes / 8;
inline constexpr int kWeightBytes = kTileRows * kBlockKeys * 2;
inline constexpr int kRowsAhead = 4;  // rows that lie between the first and the last warpgroup

/// What the warpgroups share. The tiles come first: they are aligned to 1024 bytes.
struct Shared {
  unsigned char q[kTileBytes];
  unsigned char keys[kStages][kTileBytes];
  unsigned char weights[2][kWeightBytes];  // P of a block: 64 heads by 64 keys, swizzled
  float decay[2][kTileRows];
  float inverse[kRowsAhead][kTileRows];  // of the denominators of rows
  int warp_slots[kRowsAhead][4];         // slots up to the last used one that a warp saw, of rows
  uint64_t full[kStages][2];             // halves of a stage, by channels
  uint64_t empty[kStages][2];            // they and P have been multiplied
  uint64_t weights_full[2];
  uint64_t inverse_full[kRowsAhead];
  uint64_t list_full[2];
};

/// Dynamic shared memory: Shared, two lists with one bit and one PackedKey a slot, and the
/// alignment's slack.
inline int shared_bytes(const AttentionCall& call) {
  return static_cast<int>(sizeof(Shared)) + call.rounded_slots() * 16 + call.rounded_slots() / 4 +
         1024;
}

/// Blocks of a list; an empty list is one block without keys.
__device__ inline int blocks_of(int slots) {
  return max((slots + kBlockKeys - 1) / kBlockKeys, 1);
}

__device__ inline void initialise(Shared& shared) {
  for (int stage = 0; stage < kStages; ++stage) {
    for (uint64_t& barrier : shared.full[stage])
      barrier_init(&barrier, kProducerWarps);
    for (uint64_t& barrier : shared.empty[stage])
      barrier_init(&barrier, kMixers / 2);
  }
  for (int slot = 0; slot < 2; ++slot) {
    barrier_init(&shared.weights_full[slot], 128);
    barrier_init(&shared.list_full[slot], 128);
  }
  for (uint64_t& barrier : shared.inverse_full)
    barrier_init(&barrier, 128);
  barrier_init_fence();
}

/// One arrival of a warp, after all of its lanes came here.
__device__ inline void warp_arrive(uint64_t* barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/// Named barrier: all warps of the weighers are here.
inline constexpr int kWeighersMeet = 1;

/// The lists of two rows: the one under way and the next.
class RowLists {
 public:
  __device__ RowLists(const AttentionCall& call, Shared& shared, unsigned char* memory)
      : call_(call), shared_(shared), slots_(call.rounded_slots()) {
    keys_ = reinterpret_cast<PackedKey*>(memory);
    used_ = reinterpret_cast<uint64_t*>(keys_ + 2 * slots_);
  }

  /// Keys of row number `number` of this block of threads, from slot `slot` on.
  __device__ const PackedKey* keys(uint32_t number, int slot) const {
    return keys_ + number % 2 * slots_ + slot;
  }

  /// Bit k: slot k of block `block` holds a key.
  __device__ uint64_t used(uint32_t number, int block) const {
    return used_[number % 2 * (slots_ / kBlockKeys) + block];
  }

  /// Resolves the list of `row`, by one warpgroup; nobody reads that of row number - 2 any more.
  __device__ void find(int row, uint32_t number, int thread) const {
    const KeyList list(call_, row);
    auto* halves = reinterpret_cast<uint32_t*>(used_ + number % 2 * (slots_ / kBlockKeys));
    int last = 0;
    for (int first = 0; first < slots_; first += kFound * 128) {
      Key keys[kFound];
      list.find(first + thread, 128, keys);
#pragma unroll
      for (int i = 0; i < kFound; ++i) {
        const int slot = first + i * 128 + thread;
        if (slot >= slots_) break;  // the whole warp
        const PackedKey key = keys[i].packed();
        keys_[number % 2 * slots_ + slot] = key;
        const uint32_t used = __ballot_sync(0xffffffffu, key != 0);
        if (thread % 32 == 0) halves[slot / 32] = used;
        if (used != 0) last = slot / 32 * 32 + 32 - __clz(static_cast<int>(used));
      }
    }
    if (thread % 32 == 0) shared_.warp_slots[number % kRowsAhead][thread / 32] = last;
    barrier_arrive(&shared_.list_full[number % 2]);
  }

  /// Slots of a row up to the last used one, once its list is there.
  __device__ int slots(uint32_t number) const {
    const int(&last)[4] = shared_.warp_slots[number % kRowsAhead];
    return max(max(last[0], last[1]), max(last[2], last[3]));
  }

 private:
  static constexpr int kFound = 5;  // slots that a thread looks up together

  const AttentionCall& call_;
  Shared& shared_;
  int slots_;  // of a row at most, in whole blocks
  PackedKey* keys_;
  uint64_t* used_;
};

/// Reads a word for the first-level cache's sake.
__device__ inline void warm(const void* from) {
  [[maybe_unused]] uint32_t word = 0;
  asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(word) : "l"(from));
}

/// Brings what the list of a row is made of near, by one warpgroup: first what its number leads to,
/// later what its sequence does.
__device__ inline void warm_row(const AttentionCall& call, int row, int thread) {
  warm(call.sequence_of + row);
  warm(call.positions + row);
  const int32_t* selected = call.selected + static_cast<int64_t>(row) * call.num_selected;
  for (int first = thread * 8; first < call.num_selected; first += 128 * 8)
    warm(selected + first);
}
__device__ inline void warm_sequence(const AttentionCall& call, int row, int thread) {
  const SequenceRows& sequence = call.sequences[call.sequence_of[row]];
  if (thread * 4 < static_cast<int>(sizeof(SequenceRows)))
    warm(reinterpret_cast<const char*>(&sequence) + thread * 4);
}

}  // namespace di::ops::cuda::rows
