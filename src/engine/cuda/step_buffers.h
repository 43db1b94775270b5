// StepBuffers: the memory of one step in flight that the processor and the device share.
#pragma once

#include <memory>

#include "ops/cuda/graph.h"
#include "sampling/cuda/draw.h"
#include "tensor/memory.h"

namespace di::engine::cuda {

/// The size of a step's results: draws or scores, and how many best tokens each reports at most.
struct ResultShape {
  int64_t rows = 0;
  int64_t most = 0;

  int64_t bytes() const { return rows * (12 + most * 8); }
};

/// Results side by side in `memory`, which holds shape.bytes(), so that one copy brings all of
/// them.
sampling::cuda::Drawn results_in(std::byte* memory, const ResultShape& shape);

/// Thread: the one that runs the device.
class StepBuffers {
 public:
  StepBuffers();

  /// Makes room for results and the flags of `sequences`. The step that used them before is done.
  void reserve(const ResultShape& shape, int64_t sequences);

  /// Pinned memory for what a placed step copies to the device (model::kStagingBytes).
  std::byte* staging() const { return staging_.get(); }
  /// Pinned memory for the rows to draw, kStagingBytes.
  std::byte* draw_staging() const { return draw_staging_.get(); }
  /// Pinned: where the results arrive.
  std::byte* results() const { return results_.get(); }
  uint8_t* finite() const { return reinterpret_cast<uint8_t*>(finite_.get()); }

  ops::cuda::Event start;
  ops::cuda::Event end;

 private:
  std::shared_ptr<std::byte> staging_;
  std::shared_ptr<std::byte> draw_staging_;
  std::shared_ptr<std::byte> results_;
  std::shared_ptr<std::byte> finite_;
  int64_t result_bytes_ = 0;
  int64_t finite_bytes_ = 0;
};

}  // namespace di::engine::cuda
