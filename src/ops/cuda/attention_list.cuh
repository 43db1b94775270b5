// A row's list of keys on the device: window positions, oldest first, then the selected entries.
// Slot numbers count list places; blocks of 64 slots share one running maximum.
#pragma once

#include "ops/attention.h"

namespace di::ops::cuda {

inline constexpr int kBlockKeys = 64;  // list slots that share one running maximum

/// SparseAttention without what only the host can call.
struct AttentionCall {
  bf16* o = nullptr;        // [rows, heads, dim]
  const bf16* q = nullptr;  // [rows, heads, dim]
  const uint8_t* window_records = nullptr;
  RingView ring;
  int window = 0;
  int block = 0;  // SparseAttention::block
  PagedView compressed;
  bool fp8 = false;  // format of `compressed`
  const int32_t* selected = nullptr;
  int num_selected = 0;  // slots of each row; 0 without a compressed part
  const float* sink = nullptr;
  float scale = 0;
  const SequenceRows* sequences = nullptr;
  const int32_t* sequence_of = nullptr;
  const int64_t* positions = nullptr;
  int rows = 0;
  int heads = 0;
  int dim = 0;

  /// Slots of the longest possible list in whole blocks, one at least.
  __host__ __device__ int rounded_slots() const {
    const int slots = window + block + num_selected;
    return slots <= kBlockKeys ? kBlockKeys : (slots + kBlockKeys - 1) / kBlockKeys * kBlockKeys;
  }
};

/// A key's address with its format in the lowest bit, which is set for FP8 (records of the kernels
/// that use it are aligned); 0: the slot is unused.
using PackedKey = uint64_t;

/// Where a key lies. No record: the slot is unused.
struct Key {
  const uint8_t* record;
  bool fp8;

  __device__ PackedKey packed() const {
    if (record == nullptr) return 0;
    return reinterpret_cast<uint64_t>(record) | (fp8 ? 1 : 0);
  }
};

/// A 32-bit word when `real`, else −1. Without a branch, so that loads can be on their way
/// together.
__device__ inline int32_t word_or_none(bool real, const int32_t* from) {
  int32_t word = -1;
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p ld.global.s32 %0, [%1];\n}\n"
               : "+r"(word)
               : "l"(from), "r"(static_cast<int>(real)));
  return word;
}

/// One row's list.
class KeyList {
 public:
  __device__ KeyList(const AttentionCall& call, int row)
      : call_(call), selected_(call.selected + static_cast<int64_t>(row) * call.num_selected) {
    const SequenceRows& sequence = call.sequences[call.sequence_of[row]];
    const int64_t end = call.block > 0 ? sequence.start + call.block : call.positions[row] + 1;
    const int64_t begin = end - call.block - call.window;
    const int64_t oldest = max(begin, max(sequence.window_begin, int64_t{0}));
    window_ = static_cast<int>(max(end - oldest, int64_t{0}));
    const auto length = static_cast<uint32_t>(call.ring.length);
    oldest_slot_ = static_cast<uint32_t>(oldest) % length;
    from_ring_ = static_cast<int>(min(max(sequence.start - oldest, int64_t{0}), int64_t{window_}));
    own_ = call.window_records +
           (sequence.first_row + oldest - sequence.start) * call.ring.record_bytes;
    ring_ =
        reinterpret_cast<const uint8_t*>(call.ring.base) + sequence.slot * call.ring.slot_stride;
    table_ = sequence.block_table;
  }

  /// List slots, unused ones included.
  __device__ int slots() const { return window_ + call_.num_selected; }

  /// The keys of slots first, first + stride, …; beyond the list there are none.
  template <int kCount>
  __device__ void find(int first, int stride, Key (&keys)[kCount]) const {
    const auto per_block = static_cast<uint32_t>(call_.compressed.entries_per_block);
    int32_t entry[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int slot = first + i * stride;
      entry[i] = word_or_none(slot >= window_ && slot < slots(), selected_ + (slot - window_));
    }
    int32_t block[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      block[i] = word_or_none(entry[i] >= 0, table_ + static_cast<uint32_t>(entry[i]) / per_block);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      keys[i] = key_of(first + i * stride, entry[i], block[i]);
  }

  /// The key of one slot, with its early_entry().
  __device__ Key find(int slot, int32_t entry) const {
    const bool other = window_ != call_.window + call_.block;
    const int32_t found =
        word_or_none(other && slot >= window_ && slot < slots(), selected_ + (slot - window_));
    if (other) entry = found;
    const auto per_block = static_cast<uint32_t>(call_.compressed.entries_per_block);
    return key_of(
        slot, entry, word_or_none(entry >= 0, table_ + static_cast<uint32_t>(entry) / per_block)
    );
  }

 private:
  /// A key from its entry (−1: none) and the block that holds it.
  __device__ Key key_of(int slot, int32_t entry, int32_t block) const {
    const auto per_block = static_cast<uint32_t>(call_.compressed.entries_per_block);
    const uint32_t place = static_cast<uint32_t>(entry) % per_block;
    const uint8_t* record = reinterpret_cast<const uint8_t*>(call_.compressed.base) +
                            block * call_.compressed.block_stride +
                            place * call_.compressed.record_bytes;
    if (entry < 0) record = nullptr;
    const bool in_window = slot < window_;
    return {in_window ? window_record(slot) : record, in_window || call_.fp8};
  }

  __device__ const uint8_t* window_record(int slot) const {
    const auto length = static_cast<uint32_t>(call_.ring.length);
    uint32_t ring_slot = oldest_slot_ + static_cast<uint32_t>(slot);
    if (ring_slot >= length) ring_slot -= length;
    return slot < from_ring_ ? ring_ + ring_slot * call_.ring.record_bytes
                             : own_ + slot * call_.ring.record_bytes;
  }

  const AttentionCall& call_;
  const int32_t* selected_;
  const int32_t* table_;
  const uint8_t* own_;   // where slot 0 would be among this step's records
  const uint8_t* ring_;  // the sequence's
  uint32_t oldest_slot_;
  int window_;     // slots of the window part
  int from_ring_;  // the first of them, written by earlier steps
};

/// The entry of a list slot, read before the row's sequence is known: where it lies when the window
/// part has its full length.
__device__ inline int32_t early_entry(const AttentionCall& call, int row, int slot) {
  const int full = call.window + call.block;
  const int32_t* selected = call.selected + static_cast<int64_t>(row) * call.num_selected;
  return word_or_none(slot >= full && slot < full + call.num_selected, selected + (slot - full));
}

}  // namespace di::ops::cuda
