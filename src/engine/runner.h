// Runner: the thread that computes. It owns what a device owns: the cache's bytes and, for each
// slot, the tokens, block table and sampler of the sequence in it. So a step's orders hold nothing
// that an earlier step must first bring back.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "engine/device.h"
#include "engine/step_inputs.h"

namespace di::engine {

/// Runs steps in the order of their orders while the caller goes on. A step is launched as soon as
/// the device takes one more, so that a device with a queue of its own goes from step to step
/// without the processor.
///
/// Thread: submit() and collect() belong to one caller; the rest to the runner's own thread.
class Runner {
 public:
  /// Starts the thread. All that the device refers to outlives the runner.
  explicit Runner(std::unique_ptr<Device> device);
  /// Ends after the steps that were submitted.
  ~Runner();
  Runner(const Runner&) = delete;

  /// Queues a step behind those before it and returns at once.
  void submit(StepInputs inputs);

  /// The results of the oldest step that was not yet collected; waits until it is done.
  StepResult collect();

 private:
  void run();

  std::unique_ptr<Device> device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StepInputs> orders_;
  std::deque<StepResult> results_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace di::engine
