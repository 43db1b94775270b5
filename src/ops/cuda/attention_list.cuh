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
    const int slots = window + num_selected;
    return slots <= kBlockKeys ? kBlockKeys : (slots + kBlockKeys - 1) / kBlockKeys * kBlockKeys;
  }
};

/// Where a key lies. No record: the slot is unused.
struct Key {
  const uint8_t* record;
  bool fp8;
};

/// One row's list.
class KeyList {
 public:
  __device__ KeyList(const AttentionCall& call, int row)
      : call_(call),
        sequence_(call.sequences + call.sequence_of[row]),
        selected_(call.selected + static_cast<int64_t>(row) * call.num_selected) {
    const int64_t position = call.positions[row];
    start_ = sequence_->start;
    oldest_ = max(position - call.window + 1, max(sequence_->window_begin, int64_t{0}));
    window_ = static_cast<int>(max(position - oldest_ + 1, int64_t{0}));
    own_ = call.window_records + (sequence_->first_row - start_) * call.ring.record_bytes;
    slot_ =
        reinterpret_cast<const uint8_t*>(call.ring.base) + sequence_->slot * call.ring.slot_stride;
    table_ = sequence_->block_table;
  }

  /// List slots, unused ones included.
  __device__ int slots() const { return window_ + call_.num_selected; }
  /// Slots of the window part.
  __device__ int window() const { return window_; }
  __device__ const int32_t* selected() const { return selected_; }

  __device__ Key operator[](int slot) const {
    if (slot < window_) {
      const int64_t p = oldest_ + slot;
      const uint8_t* base = p >= start_ ? own_ + p * call_.ring.record_bytes
                                        : slot_ + p % call_.ring.length * call_.ring.record_bytes;
      return {base, true};
    }
    const int entry = slot - window_;
    const int j = entry < call_.num_selected ? selected_[entry] : -1;
    if (j < 0) return {nullptr, call_.fp8};
    const auto per_block = static_cast<int>(call_.compressed.entries_per_block);
    const std::byte* record = call_.compressed.base +
                              table_[j / per_block] * call_.compressed.block_stride +
                              j % per_block * call_.compressed.record_bytes;
    return {reinterpret_cast<const uint8_t*>(record), call_.fp8};
  }

 private:
  const AttentionCall& call_;
  const SequenceRows* sequence_;
  const int32_t* selected_;
  const int32_t* table_;
  const uint8_t* own_;   // record of position 0, were it among this step's
  const uint8_t* slot_;  // the sequence's ring
  int64_t start_;
  int64_t oldest_;
  int window_;
};

}  // namespace di::ops::cuda
