// The model of the original reproduces what the original was seen to do; then ours on the same
// traffic.
#include "sched/simulation.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/error.h"
#include "sched/traffic.h"

namespace di::sched {
namespace {

SimulatedRequest request(int64_t prompt_tokens, int64_t output_tokens) {
  SimulatedRequest request;
  request.prompt_tokens = prompt_tokens;
  request.output_tokens = request.max_tokens = output_tokens;
  return request;
}

SimulatedMachine machine_of(int64_t num_blocks, int64_t lag) {
  SimulatedMachine machine;
  machine.num_blocks = num_blocks;
  machine.lag = lag;
  machine.max_steps = 20'000;
  return machine;
}

using Steps = std::vector<int64_t>;

TEST(OriginalPolicy, ServesALoneTextPromptInItsFirstStep) {
  const auto result = simulate_original({request(100, 1)}, {}, machine_of(100, 1));
  EXPECT_EQ(result.requests[0].prompt_steps, Steps{1});
}

TEST(OriginalPolicy, LeavesAPromptThatIsReadyOneStepLateWaitingFor71Steps) {
  OriginalOptions options;
  options.ready_one_step_late = true;
  const auto result = simulate_original({request(100, 1)}, options, machine_of(100, 1));
  EXPECT_EQ(result.requests[0].prompt_steps, Steps{71});
}

TEST(OriginalPolicy, RunsChunksBackToBackOnOneRank) {
  OriginalOptions options;
  options.max_num_batched_tokens = 1536;
  const auto result = simulate_original({request(6000, 1)}, options, machine_of(100, 1));
  EXPECT_EQ(result.requests[0].prompt_steps, (Steps{1, 2, 3, 4}));
}

TEST(OriginalPolicy, RunsAChunkEveryHundredStepsWhenTheOtherRankIsSilent) {
  OriginalOptions options;
  options.max_num_batched_tokens = 1536;
  SimulatedMachine machine = machine_of(100, 1);
  machine.num_ranks = 2;
  const auto result = simulate_original({request(6000, 1)}, options, machine);
  EXPECT_EQ(result.requests[0].prompt_steps, (Steps{101, 202, 303, 404}));
}

TEST(OriginalPolicy, PreemptsAndWaitsForBlocksAndAnAttempt) {
  OriginalOptions options;
  options.num_drafts = 3;
  const auto result =
      simulate_original({request(100, 900), request(100, 900)}, options, machine_of(9, 0));
  EXPECT_EQ(result.num_preemptions, 1);
  EXPECT_EQ(result.num_prompt_rows, 709);
  EXPECT_EQ(result.num_steps, 405);
  const auto roomy =
      simulate_original({request(100, 900), request(100, 900)}, options, machine_of(100, 0));
  EXPECT_EQ(roomy.num_steps, 226);
}

TEST(OriginalPolicy, HoldsAFinishedPromptsBlocksUntilADecodeStep) {
  const Traffic traffic(3, request(2000, 1));
  OriginalOptions options;
  options.max_num_batched_tokens = 8192;
  const auto result = simulate_original(traffic, options, machine_of(39, 1));
  EXPECT_EQ(result.requests[1].prompt_steps, Steps{1});
  EXPECT_EQ(result.requests[2].prompt_steps, Steps{72});
}

TEST(OriginalPolicy, RunsOneWastedStepAfterTheLastToken) {
  const auto result = simulate_original({request(10, 4), request(10, 5)}, {}, machine_of(100, 1));
  EXPECT_EQ(result.requests[0].end_steps, 4);
  EXPECT_EQ(result.requests[1].end_steps, 5);
  EXPECT_EQ(result.num_steps, 5);
}

TEST(OriginalPolicy, LosesTheBlocksOfAPromptThatIsAbortedBetweenChunks) {
  SimulatedRequest aborted = request(6000, 1);
  aborted.abort_at = 0.05;
  OriginalOptions options;
  options.max_num_batched_tokens = 1536;
  const auto result = simulate_original({aborted, request(10, 10)}, options, machine_of(100, 1));
  EXPECT_EQ(result.num_blocks_lost, 47);
}

TEST(OriginalPolicy, StandsStillWhenPreemptedPromptsKeepTheirBlocks) {
  const Traffic traffic(6, request(1000, 400));
  OriginalOptions options;
  options.max_num_batched_tokens = 256;
  int64_t num_hung = 0;
  for (int64_t num_blocks = 16; num_blocks < 60; ++num_blocks)
    num_hung += simulate_original(traffic, options, machine_of(num_blocks, 1)).num_unfinished > 0;
  EXPECT_GT(num_hung, 0);
}

// The value that a share of the values does not exceed.
template <class Of>
double percentile(const std::vector<RequestTimes>& requests, double share, Of of) {
  std::vector<double> values;
  for (const RequestTimes& times : requests)
    values.push_back(static_cast<double>(of(times)));
  std::sort(values.begin(), values.end());
  return values.at(static_cast<std::size_t>(share * static_cast<double>(values.size() - 1)));
}

double end_steps(const SimulationResult& result, double share) {
  return percentile(result.requests, share, [](const RequestTimes& t) { return t.end_steps; });
}

TEST(Policies, OursEndsASmallPoolsRequestsSoonerWithFewerPreemptions) {
  for (const uint64_t seed : {1, 2, 3}) {
    const Scenario scenario = make_scenario("small-pool", seed);
    const auto ours = simulate(scenario.traffic, scenario.options, scenario.machine);
    const auto theirs = simulate_original(scenario.traffic, scenario.original, scenario.machine);
    EXPECT_LT(end_steps(ours, 0.5), 0.7 * end_steps(theirs, 0.5)) << "seed " << seed;
    EXPECT_LT(end_steps(ours, 0.99), 0.8 * end_steps(theirs, 0.99)) << "seed " << seed;
    EXPECT_LT(ours.num_preemptions, theirs.num_preemptions / 2) << "seed " << seed;
    EXPECT_LT(ours.seconds, theirs.seconds) << "seed " << seed;
    EXPECT_EQ(ours.num_unfinished, 0);
    EXPECT_EQ(ours.num_blocks_lost, 0);
  }
}

TEST(Policies, OriginalsSmallPoolIsNearWhatTheOriginalWasSeenToDo) {
  const Scenario scenario = make_scenario("small-pool", 1);
  const auto theirs = simulate_original(scenario.traffic, scenario.original, scenario.machine);
  EXPECT_NEAR(end_steps(theirs, 0.5), 718, 40);
  EXPECT_NEAR(end_steps(theirs, 0.99), 1444, 60);
  EXPECT_NEAR(static_cast<double>(theirs.num_preemptions), 241, 15);
}

TEST(Policies, OursNeverHoldsUpATokenForALongPrompt) {
  const Scenario scenario = make_scenario("long-among-short", 1);
  const auto longest_gap = [](const RequestTimes& times) { return times.longest_gap_seconds; };
  const auto ours = simulate(scenario.traffic, scenario.options, scenario.machine);
  const auto theirs = simulate_original(scenario.traffic, scenario.original, scenario.machine);
  EXPECT_LT(percentile(ours.requests, 1, longest_gap), 1.1 * scenario.options.max_step_seconds);
  EXPECT_GT(percentile(theirs.requests, 0.5, longest_gap), 1);
}

TEST(Policies, OursLetsAHeavyUserWaitAndNotTheOthers) {
  const Scenario scenario = make_scenario("heavy-user", 1);
  const auto result = simulate(scenario.traffic, scenario.options, scenario.machine);
  std::vector<RequestTimes> others;
  for (std::size_t i = 0; i < scenario.traffic.size(); ++i) {
    if (scenario.traffic[i].user != 0) others.push_back(result.requests[i]);
  }
  const auto first_token = [](const RequestTimes& times) { return times.first_token_seconds; };
  EXPECT_LT(percentile(others, 0.5, first_token), 0.5);
  EXPECT_LT(percentile(others, 0.99, first_token), 2);
  EXPECT_EQ(result.num_unfinished, 0);
}

TEST(Policies, EveryScenarioIsTheSameOnEachRun) {
  for (const std::string& name : scenario_names()) {
    if (name == "host-cost") continue;
    const Scenario a = make_scenario(name, 7);
    const Scenario b = make_scenario(name, 7);
    ASSERT_EQ(a.traffic.size(), b.traffic.size());
    for (std::size_t i = 0; i < a.traffic.size(); ++i) {
      EXPECT_EQ(a.traffic[i].arrival, b.traffic[i].arrival);
      EXPECT_EQ(a.traffic[i].prompt_tokens, b.traffic[i].prompt_tokens);
    }
  }
  EXPECT_THROW(make_scenario("no such traffic", 1), Error);
}

}  // namespace
}  // namespace di::sched
