// Generators of the named traffics; see traffic.h.
#include "sched/traffic.h"

#include <functional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/seeded_random.h"

namespace di::sched {
namespace {

// Allowed to draw `max_tokens`, and mostly ending before.
void set_output(SimulatedRequest& request, int64_t most, SeededRandom& random) {
  request.max_tokens = most;
  request.output_tokens = random.between(most / 8, most);
}

std::vector<Group> long_and_short(int64_t long_prompt) {
  const auto is_long = [=](const SimulatedRequest& request) {
    return request.prompt_tokens >= long_prompt;
  };
  return {{"long prompts", is_long}, {"short prompts", std::not_fn(is_long)}};
}

// Sizes and rate at which the model of the original comes near what the original was seen to do:
// half of the requests ended within 718 steps, 99 of 100 within 1,444, with 241 preemptions.
Scenario small_pool(SeededRandom& random) {
  Scenario scenario;
  scenario.machine.num_blocks = 60;
  for (int i = 0; i < 334; ++i) {
    SimulatedRequest request;
    request.arrival = 0.09 * (i + 1);
    request.prompt_tokens = random.between(56, 112);
    request.max_tokens = 232;
    request.output_tokens = random.between(208, 232);
    scenario.traffic.push_back(request);
  }
  return scenario;
}

Scenario two_ranks() {
  Scenario scenario;
  scenario.machine.num_ranks = 2;
  scenario.options.max_num_batched_tokens = scenario.original.max_num_batched_tokens = 1536;
  SimulatedRequest request;
  request.prompt_tokens = 6000;
  request.output_tokens = request.max_tokens = 100;
  scenario.traffic.push_back(request);
  return scenario;
}

Scenario long_among_short(SeededRandom& random) {
  Scenario scenario;
  scenario.machine.num_blocks = 4096;
  scenario.options.max_step_seconds = 0.05;
  scenario.groups = long_and_short(8000);
  double now = 0;
  for (int i = 0; i < 2000; ++i) {
    SimulatedRequest request;
    now += random.exponential(0.08);
    request.arrival = now;
    request.user = random.between(0, 15);
    request.prompt_tokens = i % 40 == 20 ? random.between(8000, 32000) : random.between(32, 512);
    set_output(request, 256, random);
    scenario.traffic.push_back(request);
  }
  return scenario;
}

Scenario heavy_user(SeededRandom& random) {
  Scenario scenario;
  scenario.machine.num_blocks = 256;
  scenario.machine.num_slots = 32;
  scenario.options.max_num_seqs = scenario.original.max_num_seqs = 32;
  const auto is_heavy = [](const SimulatedRequest& request) { return request.user == 0; };
  scenario.groups = {{"the heavy user", is_heavy}, {"others", std::not_fn(is_heavy)}};
  double next_of_others = 0;
  for (int i = 0; i < 1400; ++i) {
    SimulatedRequest request;
    if (i >= 1000) {
      request.arrival = next_of_others += random.exponential(0.3);
      request.user = random.between(1, 20);
    }
    request.prompt_tokens = random.between(64, 512);
    set_output(request, 256, random);
    scenario.traffic.push_back(request);
  }
  return scenario;
}

Scenario host_cost(SeededRandom& random) {
  Scenario scenario;
  scenario.machine.num_blocks = 8192;
  scenario.machine.max_steps = 3000;
  for (int i = 0; i < 10'256; ++i) {
    SimulatedRequest request;
    request.user = random.between(0, 99);
    request.prompt_tokens = random.between(16, 64);
    request.output_tokens = request.max_tokens = random.between(2000, 3000);
    scenario.traffic.push_back(request);
  }
  return scenario;
}

Scenario mixed(SeededRandom& random) {
  Scenario scenario;
  scenario.machine.num_blocks = 1024;
  scenario.options.max_step_seconds = 0.05;
  scenario.groups = long_and_short(4000);
  double now = 0;
  for (int i = 0; i < 2000; ++i) {
    SimulatedRequest request;
    now += random.exponential(0.1);
    request.arrival = now;
    request.user = random.one_in(2) ? 0 : random.between(1, 20);
    request.priority = random.one_in(10) ? 1 : 0;
    request.prompt_tokens =
        random.one_in(20) ? random.between(4000, 12000) : random.between(32, 1024);
    set_output(request, random.one_in(4) ? 1024 : 256, random);
    if (random.one_in(20)) request.abort_at = now + random.exponential(2);
    scenario.traffic.push_back(request);
  }
  return scenario;
}

}  // namespace

const std::vector<std::string>& scenario_names() {
  static const std::vector<std::string> names{
      "small-pool", "two-ranks", "long-among-short", "heavy-user", "host-cost", "mixed"};
  return names;
}

Scenario make_scenario(std::string_view name, uint64_t seed) {
  SeededRandom random(seed);
  Scenario scenario;
  if (name == "small-pool") {
    scenario = small_pool(random);
  } else if (name == "two-ranks") {
    scenario = two_ranks();
  } else if (name == "long-among-short") {
    scenario = long_among_short(random);
  } else if (name == "heavy-user") {
    scenario = heavy_user(random);
  } else if (name == "host-cost") {
    scenario = host_cost(random);
  } else if (name == "mixed") {
    scenario = mixed(random);
  } else {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("no traffic is called '{}'", name));
  }
  scenario.name = name;
  return scenario;
}

}  // namespace di::sched
