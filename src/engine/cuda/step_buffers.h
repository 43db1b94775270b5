// StepBuffers: the memory of one step in flight that the processor and the device share.
#pragma once

#include <memory>
#include <optional>

#include "model/placed_step.h"
#include "ops/cuda/graph.h"
#include "sampling/cuda/draw.h"
#include "tensor/arena.h"

namespace di::engine::cuda {

/// The size of a step's results: draws or scores, and how many best tokens each reports at most.
struct ResultShape {
  int64_t rows = 0;
  int64_t most = 0;

  int64_t bytes() const { return rows * (12 + most * 8); }
};

/// What a device takes at first for the results of a step of so many draws and scores: each with
/// the best tokens that are usually asked for.
int64_t planned_result_bytes(int64_t rows);

/// Results side by side in `memory`, which holds shape.bytes(), so that one copy brings all of
/// them.
sampling::cuda::Drawn results_in(std::byte* memory, const ResultShape& shape);

/// Thread: the one that runs the device.
class StepBuffers {
 public:
  StepBuffers();

  /// Forgets the step that used them before, which is done.
  void begin();

  /// Makes room for results of so many bytes and the flags of `sequences`.
  void reserve(int64_t result_bytes, int64_t sequences);

  /// Pinned memory for what a placed step copies to the device (model::kStagingBytes).
  std::byte* staging() const { return staging_.get(); }
  /// The same for the draft behind a step.
  std::byte* draft_staging() const { return staging_.get() + model::kStagingBytes; }
  /// Pinned memory for other copies to the device; it stays until the next begin().
  Arena& uploads() { return uploads_; }
  /// Pinned: where the results arrive.
  std::byte* results() const { return results_.get(); }
  /// Pinned: where draws are counted and drafts arrive.
  std::byte* drafts() const { return drafts_.get(); }
  void reserve_drafts(int64_t bytes);
  uint8_t* finite() const { return reinterpret_cast<uint8_t*>(finite_.get()); }

  ops::cuda::Event start;
  ops::cuda::Event ready;  ///< between the copies to the device and the pass
  ops::cuda::Event drawn;  ///< between the draws and the drafts
  ops::cuda::Event end;

 private:
  std::shared_ptr<std::byte> staging_;
  Arena uploads_;
  std::optional<Arena::Scope> in_use_;  // of uploads_, since begin()
  std::shared_ptr<std::byte> results_;
  std::shared_ptr<std::byte> finite_;
  std::shared_ptr<std::byte> drafts_;
  int64_t result_bytes_ = 0;
  int64_t finite_bytes_ = 0;
  int64_t draft_bytes_ = 0;
};

}  // namespace di::engine::cuda
