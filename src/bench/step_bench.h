// `deepinfer bench step`: whole steps of a model on a backend's device, without a scheduler: the
// forward pass, the draws and the way of their results back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "bench/memory_bench.h"
#include "model/model.h"
#include "ops/ops.h"

namespace di::bench {

struct StepBenchOptions {
  std::string label;                            ///< what the lines call the model
  std::vector<int64_t> sequences = {1, 8, 64};  ///< that decode
  int64_t context = 1024;  ///< tokens in each sequence's cache before the first decode step
  int64_t chunk = 1024;    ///< rows of a prefill step at most
  int64_t num_steps = 64;  ///< decode steps to measure, after as many that warm up
  std::vector<int64_t> drafts =
      {};  ///< that each sequence verifies in a step while it makes new
           ///< ones: a phase each, before the one without; needs a drafter
};

/// For each number of sequences, which must not be empty: fills the caches chunk by chunk (a line
/// with the phase prefill), then decodes greedily (lines with the phase decode). Emits model,
/// phase, sequences, drafts (verified of a sequence), drafting (whether new ones are made), rows
/// (of a step), steps, us (a step, the median from result to result), p99_us, device_us (of the
/// step's own clock) and rows_per_s. Throws Error{kUnsupported} when a step fails,
/// Error{kInvalidArgument} when the model cannot make so many drafts.
void bench_step(
    const StepBenchOptions& options,
    const model::Model& model,
    const ops::OpTable& ops,
    ThreadPool& pool,
    const Emit& emit
);

}  // namespace di::bench
