// The traffics that policies are compared on. Private to simulations, tests and benchmarks.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sched/original_policy.h"
#include "sched/simulation.h"

namespace di::sched {

/// Some of a traffic's requests.
struct Group {
  std::string name;
  std::function<bool(const SimulatedRequest&)> contains;
};

/// A traffic with the machine and the limits it is run with.
struct Scenario {
  std::string name;
  Traffic traffic;
  SimulatedMachine machine;
  SchedulerOptions options;
  OriginalOptions original;
  std::vector<Group> groups;  ///< shown apart
};

/// Names that make_scenario() knows.
const std::vector<std::string>& scenario_names();

/// A scenario by name; the same seed gives the same traffic on every machine.
///
/// - small-pool: 334 requests at a steady rate, more than the blocks hold at once
/// - two-ranks: a prompt of 6,000 tokens on one of two ranks, 1,536 rows a step, the other silent
/// - long-among-short: chats, with a prompt of 8,000 to 32,000 tokens among every forty
/// - heavy-user: one user sends a thousand requests at once, twenty others one now and then
/// - host-cost: 256 sequences decode while 10,000 requests wait
/// - mixed: users, priorities, aborts, chats and documents
///
/// Throws Error{kInvalidArgument} for other names.
Scenario make_scenario(std::string_view name, uint64_t seed);

}  // namespace di::sched
