// Device: what runs steps. It owns what steps leave behind for later ones, so that the orders of a
// step hold nothing that an earlier step must first bring back.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "cache/kv_cache.h"
#include "engine/step_inputs.h"
#include "model/model.h"
#include "ops/ops.h"

namespace di::engine {

/// Runs one step after the other. All calls come from one thread.
class Device {
 public:
  virtual ~Device() = default;

  /// Starts the forward pass, forks and draws of one step, which may go on after the return. Never
  /// throws: a failure is told in the result, and the rows of its sequences in later steps are then
  /// skipped.
  virtual void launch(StepInputs inputs) = 0;

  /// Whether a step may be launched before the oldest one that was launched is collected.
  virtual bool takes_another() const = 0;

  /// Whether the oldest launched step is done.
  virtual bool done() const = 0;

  /// The results of the oldest launched step; waits until it is done.
  virtual StepResult collect() = 0;
};

/// A device whose steps are done when launch() returns.
class SynchronousDevice : public Device {
 public:
  /// The whole step; see Device::launch().
  virtual StepResult run(const StepInputs& inputs) = 0;

  void launch(StepInputs inputs) final { result_ = run(inputs); }
  bool takes_another() const final { return !result_; }
  bool done() const final { return true; }
  StepResult collect() final { return *std::exchange(result_, std::nullopt); }

 private:
  std::optional<StepResult> result_;
};

/// What a device is made from. All of it outlives the device.
struct DeviceParts {
  const model::Model& model;
  const ops::OpTable& ops;
  cache::KvCache& cache;
  ThreadPool& pool;
  model::Replay replay;
  int64_t context = 0;                          ///< tokens of a sequence at most
  int64_t num_drafts = 0;                       ///< that a sequence makes at once; 0: none
  std::vector<double> draft_temperatures = {};  ///< of their confidences; empty: 1
  int64_t scratch_bytes = 0;  ///< that a device takes for its steps at once; 0: as they need them
  int64_t max_results = 0;    ///< draws and scores of a step, as planned; 0: as they need them
};

}  // namespace di::engine
