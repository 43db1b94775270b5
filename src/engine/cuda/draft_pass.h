// DraftPass: drafts on the device behind the draws of a step, without the processor in between. It
// places the pass as if nothing were drawn, and the device moves it behind what was.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/cuda/recordings.h"
#include "engine/cuda/slot_memory.h"
#include "engine/cuda/step_buffers.h"
#include "engine/device.h"
#include "engine/slot_drafts.h"
#include "ops/cuda/draft_rows.h"
#include "sampling/cuda/drafts.h"

namespace di::engine::cuda {

/// A sequence that drafts.
struct DraftingSlot {
  int32_t slot = 0;
  int64_t known = 0;          ///< its tokens before the draws of the step
  int64_t prompt_length = 0;  ///< as in model::DraftInput
  int64_t drawn = 0;          ///< its place in num_drawn()
  bool by_block = false;      ///< block verification will judge its drafts
  bool has_edits = false;     ///< has_edits() of its request
};

/// Whether a request changes the model's logits before it draws.
bool has_edits(const sampling::SamplingParams& params);

/// Owns where the drafts of a step lie, and the recordings of passes.
///
/// Thread: the one that runs the device.
class DraftPass {
 public:
  DraftPass(const DeviceParts& parts, const SlotMemory& slots);

  /// Device memory that it takes.
  static int64_t bytes(int64_t slots, int64_t num_drafts);

  /// [2 · slots]: tokens that the step drew, for each of its blocks and then its forks. Whoever
  /// draws writes them before the pass.
  View<int32_t, 1> num_drawn() const;

  /// Enqueues the pass: drafts go behind the newest token of each slot, and into the results. True
  /// when it is played, and not run or recorded for the first time.
  bool enqueue(std::span<const DraftingSlot> drafting, ops::Exec& exec, StepBuffers& buffers);

  /// Enqueues the copy of num_drawn and the drafts of `sequences` to the processor.
  void fetch(int64_t sequences, ops::Exec& exec, StepBuffers& buffers) const;

  /// What was fetched: num_drawn, and the drafts of one of `sequences`.
  static const int32_t* fetched_num_drawn(const StepBuffers& buffers);
  SlotDrafts drafts_of(int64_t sequence, int64_t sequences, const StepBuffers& buffers) const;

 private:
  /// What a recorded pass is for.
  struct Key {
    int64_t sequences = 0;
    int64_t max_length = 0;
    bool chooses = false;
    auto operator<=>(const Key&) const = default;
  };

  View<int32_t, 2> tokens(int64_t sequences) const;
  View<float, 2> confidence(int64_t sequences) const;

  const DeviceParts& parts_;
  const SlotMemory& slots_;
  int64_t length_;
  std::shared_ptr<std::byte> results_;  // num_drawn, tokens, confidence
  Recordings<Key> recordings_;
};

}  // namespace di::engine::cuda
