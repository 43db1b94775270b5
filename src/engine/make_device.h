// Which device runs the steps of a backend, and what memory they take there.
#pragma once

#include <memory>
#include <optional>

#include "checkpoint/checkpoint.h"
#include "engine/device.h"
#include "model/memory_plan.h"

namespace di::engine {

/// The device for the backend of `parts.ops`: the processor's, or a GPU's. Throws
/// Error{kOutOfMemory} when its buffers do not fit.
std::unique_ptr<Device> make_device(const DeviceParts& parts);

/// The steps that are to be planned for.
struct StepLimits {
  int64_t context = 0;     ///< tokens of a sequence
  int64_t max_rows = 0;    ///< of a step
  int64_t max_seqs = 0;    ///< that run at once
  int64_t num_slots = 0;   ///< state slots
  int64_t num_drafts = 0;  ///< tokens that a sequence drafts at once; 0: no drafter is loaded
  model::Replay replay = {};
};

/// What the device for `ops` will take for its steps, found by recording the worst of them without
/// weights; nothing for the processor. Throws Error{kUnsupported} for a model that the device's
/// kernels cannot run.
std::optional<model::StepMemory> measure_steps(
    const checkpoint::Checkpoint& checkpoint,
    const ops::OpTable& ops,
    ThreadPool& pool,
    const StepLimits& limits
);

}  // namespace di::engine
