// SlotMemory: what the device keeps of the sequence in each slot, besides its caches.
#pragma once

#include <cstdint>
#include <memory>

#include "sampling/cuda/draft_record.h"
#include "sampling/cuda/slot.h"
#include "tensor/memory.h"

namespace di::engine::cuda {

/// One allocation for all slots, made once.
///
/// Thread: any; what is in it belongs to the device's stream.
class SlotMemory {
 public:
  /// What slots are to hold.
  struct Size {
    int64_t slots = 0;
    int64_t context = 0;  ///< tokens of a sequence; what is drawn and drafted comes behind them
    int64_t vocab_size = 0;
    int64_t num_drafts = 0;  ///< of a sequence
  };

  SlotMemory(const Memory& memory, const Size& size);

  /// What that allocation takes.
  static int64_t bytes(const Size& size);

  int64_t num_slots() const { return size_.slots; }
  /// [context + 1 and drafts]: the sequence's tokens.
  int32_t* tokens(int64_t slot) const;
  /// [blocks of the context]: its block table.
  int32_t* blocks(int64_t slot) const;
  /// [slots].
  sampling::cuda::SlotParams* params() const;
  /// [drafts]: of those that block verification will judge.
  sampling::cuda::DraftRecord* records(int64_t slot) const;
  /// Where its SlotParams may point to.
  sampling::cuda::SlotArea area(int64_t slot) const;

 private:
  /// Bytes of one slot, array by array: those of all slots lie behind each other.
  struct Strides {
    explicit Strides(const Size& size);
    int64_t tokens, blocks, records, area, params;
    int64_t all() const { return tokens + blocks + records + area + params; }
  };

  /// Where the slot's part of an array begins, behind arrays of `before` bytes a slot.
  std::byte* at(int64_t before, int64_t stride, int64_t slot) const {
    return memory_.get() + size_.slots * before + slot * stride;
  }

  Size size_;
  Strides strides_;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace di::engine::cuda
