// DeviceSteps: a device with sequences of one length, and the orders of their steps, without a
// scheduler. What benchmarks of whole steps share.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "cache/kv_cache.h"
#include "engine/device.h"
#include "model/model.h"
#include "ops/ops.h"

namespace di::bench {

/// How long steps took.
struct StepTimes {
  std::vector<double> seconds;  ///< of each, from result to result
  std::vector<double> device;   ///< of each, by the step's own clock
};

/// What the decode steps of a phase do besides.
struct StepDrafts {
  int64_t verified = 0;   ///< drafts that each sequence verifies
  bool drafting = false;  ///< behind its draws, each sequence makes new ones; needed to verify any
};

/// Runs greedy steps. Which drafts are accepted does not matter to what a step costs.
class DeviceSteps {
 public:
  struct Options {
    int64_t sequences = 1;
    int64_t context = 1024;  ///< tokens in each cache before the first decode step
    int64_t chunk = 1024;    ///< rows of a prefill step at most
    int64_t num_steps = 64;  ///< decode steps of all calls, at most
    int64_t num_drafts = 0;  ///< that a sequence makes at once; 0: none
  };

  DeviceSteps(
      const Options& options, const model::Model& model, const ops::OpTable& ops, ThreadPool& pool
  );

  /// Fills the caches chunk by chunk, one sequence after the other.
  StepTimes prefill();

  /// Decode steps of all sequences. The first one behind steps that made no drafts verifies none.
  /// Throws Error{kUnsupported} when a step fails, or a later one verifies fewer than asked for.
  StepTimes decode(int64_t num_steps, const StepDrafts& drafts = {});

 private:
  using Clock = std::chrono::steady_clock;

  engine::SequenceOrder rows_of(int64_t sequence, int64_t start, int64_t num_rows) const;
  engine::SequenceOrder chunk_of(int64_t sequence, int64_t start) const;
  void launch(engine::StepInputs inputs, StepTimes& times);
  void collect(StepTimes& times);
  void drain(StepTimes& times);

  Options options_;
  int64_t vocab_size_;
  int64_t length_;
  int64_t blocks_each_;
  cache::KvCache cache_;
  std::unique_ptr<engine::Device> device_;
  int64_t num_launched_ = 0;
  int64_t in_flight_ = 0;
  int64_t decoded_ = 0;
  int64_t num_verified_ = 0;  // by the step collected last
  bool has_drafts_ = false;   // left by the step before
  Clock::time_point last_;
};

}  // namespace di::bench
