// SlotMemory: what the device keeps of the sequence in each slot, besides its caches.
#pragma once

#include <cstdint>
#include <memory>

#include "sampling/cuda/slot.h"
#include "tensor/memory.h"

namespace di::engine::cuda {

/// One allocation for all slots, made once.
///
/// Thread: any; what is in it belongs to the device's stream.
class SlotMemory {
 public:
  /// Slots of sequences of up to `context` tokens, and what is drawn and drafted behind them.
  SlotMemory(const Memory& memory, int64_t slots, int64_t context, int64_t vocab_size);

  /// What that allocation takes.
  static int64_t bytes(int64_t slots, int64_t context, int64_t vocab_size);

  int64_t num_slots() const { return slots_; }
  /// [context + 1 and drafts]: the sequence's tokens.
  int32_t* tokens(int64_t slot) const;
  /// [blocks of the context]: its block table.
  int32_t* blocks(int64_t slot) const;
  /// [slots].
  sampling::cuda::SlotParams* params() const;
  /// [slots]: the same at temperature 0, for the choice of drafts.
  sampling::cuda::SlotParams* draft_params() const;
  /// Where its SlotParams may point to.
  sampling::cuda::SlotArea area(int64_t slot) const;

 private:
  int64_t slots_;
  int64_t token_bytes_;
  int64_t block_bytes_;
  int64_t area_bytes_;
  std::shared_ptr<std::byte> memory_;  // all tokens, all block tables, all areas, twice all params
};

}  // namespace di::engine::cuda
