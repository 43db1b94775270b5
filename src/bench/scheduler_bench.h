// `deepinfer bench scheduler`: policies on simulated traffic, and what scheduling costs the host.
#pragma once

#include <cstdint>
#include <string>

#include "bench/memory_bench.h"

namespace di::bench {

struct SchedulerBenchOptions {
  std::string traffic = "small-pool";  ///< a name of sched::scenario_names()
  uint64_t seed = 1;
  int64_t lag = 1;          ///< steps in flight while the next one is planned: 0, 1, ...
  int64_t num_blocks = 0;   ///< of each rank; 0: the traffic's own
  double max_step_ms = -1;  ///< target of steps with decode rows; 0: none; < 0: the traffic's own
};

/// Runs the traffic on our scheduler and on the model of the original's policy. For each of the
/// two, one line over all requests and one for each group of requests that the traffic shows apart:
/// steps and seconds to the first token and to the end, the longest wait between two
/// tokens, preemptions, recomputed tokens; for ours the host time of plan and retire too. Times of
/// the simulation come from its cost model, not from a device.
void bench_scheduler(const SchedulerBenchOptions& options, const Emit& emit);

}  // namespace di::bench
