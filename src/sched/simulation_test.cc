// The model of the original reproduces what the original was seen to do; then ours on the same
// traffic.
#include "sched/simulation.h"

#include <gtest/gtest.h>

#include "sched/original_policy.h"

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

}  // namespace
}  // namespace di::sched
