// Schedulers without a model: traffic, a fake clock that costs move, and what became of each
// request. The tests and `deepinfer bench scheduler` compare policies with it.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "sched/scheduler.h"

namespace di::sched {

/// One request of a simulation.
struct SimulatedRequest {
  double arrival = 0;  ///< seconds
  int64_t rank = 0;    ///< which of the machine's ranks serves it
  int64_t user = 0;
  int priority = 0;
  double deadline = std::numeric_limits<double>::infinity();
  int64_t prompt_tokens = 1;
  int64_t output_tokens = 1;  ///< its last token is this one, a stop token when below max_tokens
  int64_t max_tokens = 1;
  int64_t num_choices = 1;
  double abort_at = std::numeric_limits<double>::infinity();  ///< seconds
};

using Traffic = std::vector<SimulatedRequest>;  ///< in the order of arrival

/// Seconds of one step of one rank.
struct SimulatedSeconds {
  double fixed = 0.01;
  double per_decode_row = 0.0001;
  double per_prefill_row = 0.00005;

  double of(int64_t decode_rows, int64_t prefill_rows) const {
    return fixed + per_decode_row * static_cast<double>(decode_rows) +
           per_prefill_row * static_cast<double>(prefill_rows);
  }
};

/// Ranks step together: a step lasts as long as that of the slowest rank.
struct SimulatedMachine {
  int64_t num_ranks = 1;
  int64_t num_blocks = 1024;  ///< that can be handed out, of each rank
  int64_t num_slots = 256;    ///< of each rank
  int64_t lag = 1;            ///< steps that may be in flight when the next one is planned
  SimulatedSeconds seconds;
  int64_t max_steps = 1'000'000;  ///< the simulation ends here, whatever is left
};

/// What became of one request. Steps count from the first one that could have served it, as 1.
struct RequestTimes {
  int64_t first_token_steps = 0;  ///< 0: none came
  int64_t end_steps = 0;          ///< 0: it did not end
  double first_token_seconds = 0;
  double end_seconds = 0;
  double longest_gap_seconds = 0;     ///< between two tokens of its first choice
  bool aborted = false;               ///< or expired
  std::vector<int64_t> prompt_steps;  ///< numbers of the steps with its prompt rows, from 1
};

struct SimulationResult {
  std::vector<RequestTimes> requests;  ///< as in the traffic
  int64_t num_steps = 0;
  double seconds = 0;  ///< until the last step ended
  int64_t num_preemptions = 0;
  int64_t num_prompt_rows = 0;  ///< computed, those of recomputation included
  int64_t num_recomputed_tokens = 0;
  int64_t num_unfinished = 0;     ///< requests that had not ended when the simulation did
  int64_t num_blocks_lost = 0;    ///< blocks that had not returned at the end
  std::vector<double> plan_us;    ///< host time of each plan; empty where it says nothing
  std::vector<double> retire_us;  ///< host time of each retirement
};

/// Runs `traffic` on our scheduler, one for each rank.
SimulationResult simulate(
    const Traffic& traffic, const SchedulerOptions& options, const SimulatedMachine& machine
);

}  // namespace di::sched
