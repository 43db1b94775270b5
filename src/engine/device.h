// Device: what runs steps. It owns what steps leave behind for later ones, so that the orders of a
// step hold nothing that an earlier step must first bring back.
#pragma once

#include "base/thread_pool.h"
#include "cache/kv_cache.h"
#include "engine/step_inputs.h"
#include "model/model.h"
#include "ops/ops.h"

namespace di::engine {

/// Runs one step after the other, on one thread.
class Device {
 public:
  virtual ~Device() = default;

  /// Forward pass, forks and draws of one step. Never throws: a failure is told in the result, and
  /// the rows of its sequences in later steps are then skipped.
  virtual StepResult run(const StepInputs& inputs) = 0;
};

/// What a device is made from. All of it outlives the device.
struct DeviceParts {
  const model::Model& model;
  const ops::OpTable& ops;
  cache::KvCache& cache;
  ThreadPool& pool;
  model::Replay replay;
  int64_t context = 0;  ///< tokens of a sequence at most
};

}  // namespace di::engine
