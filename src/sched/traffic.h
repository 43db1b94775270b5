// The traffics that policies are compared on. Private to simulations, tests and benchmarks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sched/original_policy.h"
#include "sched/simulation.h"

namespace di::sched {

/// A traffic with the machine and the limits it is run with.
struct Scenario {
  std::string name;
  Traffic traffic;
  SimulatedMachine machine;
  SchedulerOptions options;
  OriginalOptions original;
  int64_t long_prompt = 0;  ///< requests with so many prompt tokens are shown apart; 0: none are
};

/// Names that make_scenario() knows.
const std::vector<std::string>& scenario_names();

/// A scenario by name; the same seed gives the same traffic on every machine.
///
/// - small-pool: 334 requests at a steady rate, more than the blocks hold at once
/// - two-ranks: a prompt of 6,000 tokens on one of two ranks, 1,536 rows a step, the other silent
/// - long-among-short: chats, with a prompt of 8,000 to 32,000 tokens among every forty
/// - host-cost: 256 sequences decode while 10,000 requests wait
/// - mixed: users, priorities, aborts, chats and documents
///
/// Throws Error{kInvalidArgument} for other names.
Scenario make_scenario(std::string_view name, uint64_t seed);

}  // namespace di::sched
