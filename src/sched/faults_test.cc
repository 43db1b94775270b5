// One test for each fault of the original's scheduler that applies here; the names begin with the
// fault's id in docs/scheduler.md.
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "base/error.h"
#include "sched/original_policy.h"
#include "sched/simulation.h"
#include "sched/test_driver.h"

namespace di::sched {
namespace {

SchedulerOptions options_of(int64_t max_num_batched_tokens, int64_t max_num_seqs) {
  SchedulerOptions options;
  options.max_num_batched_tokens = max_num_batched_tokens;
  options.max_num_seqs = max_num_seqs;
  return options;
}

// Lower priorities give way to it.
SequenceSpec urgent(SequenceId id, int64_t prompt_tokens, int64_t max_tokens) {
  SequenceSpec spec = spec_of(id, prompt_tokens, max_tokens);
  spec.priority = 1;
  return spec;
}

TEST(SchedulerFaults, S1_TheFirstRequestRunsInTheNextStep) {
  Driver driver(10, 4);
  SequenceSpec late = spec_of(1, 100, 1);
  late.ready = false;
  driver.add(late);
  EXPECT_FALSE(driver.plan().has_rows());
  driver.scheduler.set_ready(1);
  const StepPlan plan = driver.step();
  EXPECT_EQ(num_rows_of(plan, 1), 100);
  EXPECT_TRUE(rows_of(plan, 1)->samples);
  EXPECT_EQ(plan.step, 0) << "an empty plan is no step";
}

TEST(SchedulerFaults, S2_ChunksFollowEachOtherWhileAnotherRankIsSilent) {
  SimulatedRequest request;
  request.prompt_tokens = 6000;
  SimulatedMachine machine;
  machine.num_ranks = 2;
  const auto result = simulate({request}, options_of(1536, 256), machine);
  EXPECT_EQ(result.requests[0].prompt_steps, (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST(SchedulerFaults, S3_AnAbortBetweenChunksReturnsEverything) {
  Driver driver(50, 4, options_of(1536, 4));
  driver.add(spec_of(1, 6000, 10));
  driver.step();
  EXPECT_EQ(driver.blocks.num_free(), 50 - 12);
  driver.scheduler.finish(1);
  EXPECT_TRUE(driver.all_is_free());
  EXPECT_FALSE(driver.scheduler.has_work());
}

TEST(SchedulerFaults, S3_AnAbortWhileAChunkRunsReturnsEverythingWhenItRetires) {
  Driver driver(50, 4, options_of(1536, 4));
  driver.add(spec_of(1, 6000, 10));
  driver.plan();
  driver.plan();
  driver.scheduler.finish(1);
  driver.scheduler.check_integrity();
  EXPECT_EQ(driver.blocks.num_free(), 50 - 24);
  driver.retire();
  EXPECT_EQ(driver.blocks.num_free(), 50 - 24) << "the second chunk still writes to all of them";
  driver.retire();
  EXPECT_TRUE(driver.all_is_free());
}

TEST(SchedulerFaults, S4_ChunksAndRecomputationNeverStandStill) {
  Traffic traffic(6);
  for (SimulatedRequest& request : traffic) {
    request.prompt_tokens = 1000;
    request.output_tokens = request.max_tokens = 400;
  }
  OriginalOptions original;
  original.max_num_batched_tokens = 256;
  int64_t num_hung = 0;
  for (int64_t num_blocks = 16; num_blocks < 60; ++num_blocks) {
    SimulatedMachine machine;
    machine.num_blocks = num_blocks;
    machine.max_steps = 20'000;
    num_hung += simulate_original(traffic, original, machine).num_unfinished > 0;
    const auto ours = simulate(traffic, options_of(256, 8), machine);
    EXPECT_EQ(ours.num_unfinished, 0) << num_blocks << " blocks";
    EXPECT_EQ(ours.num_blocks_lost, 0);
  }
  EXPECT_GT(num_hung, 0) << "the traffic shows the fault";
}

TEST(SchedulerFaults, S5_ALoneSequenceUsesTheLastBlock) {
  Driver driver(3, 1, options_of(1000, 1));
  driver.add(spec_of(1, 257, 127));
  for (int i = 0; i < 127; ++i) {
    const StepPlan plan = driver.step();
    EXPECT_TRUE(plan.preempted.empty());
    EXPECT_EQ(plan.sequences.size(), 1u);
  }
  EXPECT_FALSE(driver.scheduler.has_work());
}

TEST(SchedulerFaults, S5_NobodyGivesWayWhenNoRowNeedsABlock) {
  Driver driver(2, 2, options_of(1000, 2));
  driver.add(spec_of(1, 100, 20));
  driver.add(spec_of(2, 100, 20));
  EXPECT_EQ(driver.drain(), 20);
  EXPECT_EQ(driver.scheduler.counts().num_preemptions, 0);
}

TEST(SchedulerFaults, S6_TheVictimIsTheOneWithTheLeastWorkToLose) {
  Driver driver(10, 2, options_of(2000, 2));
  driver.add(spec_of(1, 640, 120));
  driver.step();
  driver.add(spec_of(2, 500, 120));
  std::vector<SequenceId> victims;
  while (driver.scheduler.has_work()) {
    const StepPlan plan = driver.step();
    victims.insert(victims.end(), plan.preempted.begin(), plan.preempted.end());
  }
  for (const SequenceId id : victims)
    EXPECT_EQ(id, 2);
}

TEST(SchedulerFaults, S6_TheSameSequenceIsNotTheVictimForever) {
  Driver driver(12, 8, options_of(2000, 8));
  for (SequenceId id = 0; id < 40; ++id)
    driver.add(spec_of(id, 100, 300));
  std::map<SequenceId, int64_t> times;
  while (driver.scheduler.has_work()) {
    for (const SequenceId id : driver.step().preempted)
      ++times[id];
  }
  for (const auto& [id, count] : times)
    EXPECT_LE(count, 8) << "sequence " << id;
}

TEST(SchedulerFaults, S10_AnUnreadySequenceLetsOthersPass) {
  Driver driver(10, 4);
  SequenceSpec image = spec_of(1, 100, 1);
  image.ready = false;
  driver.add(image);
  driver.add(spec_of(2, 100, 1));
  EXPECT_EQ(num_rows_of(driver.step(), 2), 100);
}

TEST(SchedulerFaults, S12_AHugeOutputLimitIsRefusedWithoutOverflow) {
  Driver driver(10, 4);
  for (const int64_t huge :
       {int64_t{std::numeric_limits<int32_t>::max()}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THROW(driver.scheduler.add(spec_of(1, 100, huge)), Error);
    EXPECT_THROW(driver.scheduler.add(spec_of(1, huge, 100)), Error);
  }
  EXPECT_FALSE(driver.scheduler.has_work());
}

TEST(SchedulerFaults, S13_ASequenceEndsAtItsLengthLimitAndNotOneLater) {
  for (const int64_t lag : {0, 1, 2}) {
    Driver driver(1, 1, options_of(128, 1));
    driver.add(spec_of(1, 100, 28));
    int64_t num_rows = 0;
    int64_t in_flight = 0;
    while (driver.scheduler.has_work()) {
      const StepPlan plan = driver.plan();
      num_rows += plan.num_rows();
      in_flight += plan.has_rows();
      if (in_flight > lag || !plan.has_rows()) {
        driver.retire();
        --in_flight;
      }
    }
    EXPECT_EQ(num_rows, 100 + 27) << "lag " << lag;
  }
}

TEST(SchedulerFaults, S14_S17_AnAbortFindsASequenceInEveryState) {
  const auto in_state = [](int state, Driver& driver) {
    SequenceSpec spec = spec_of(1, 300, 50);
    if (state == 0) spec.ready = false;
    if (state == 1) spec.max_chunk_rows = 100;
    driver.add(spec);
    spec.id = 2;
    spec.fork_of = 1;
    if (state == 1) driver.add(spec);
    for (int i = 0; i < state - 1; ++i)
      driver.plan();
  };
  for (int state = 0; state < 5; ++state) {
    Driver driver(10, 4);
    in_state(state, driver);
    driver.scheduler.finish(2);
    driver.scheduler.finish(1);
    driver.scheduler.finish(1);
    driver.scheduler.check_integrity();
    EXPECT_FALSE(driver.plan().has_rows());
    driver.drain();
    EXPECT_TRUE(driver.all_is_free()) << "state " << state;
    EXPECT_EQ(driver.scheduler.counts().waiting_tokens, 0);
  }
}

TEST(SchedulerFaults, S17_AnAbortFindsAPreemptedSequenceWhoseStepIsInFlight) {
  Driver driver(4, 2);
  driver.add(spec_of(1, 300, 50));
  driver.plan();
  driver.add(urgent(2, 300, 50));
  const StepPlan plan = driver.plan();
  EXPECT_EQ(plan.preempted, std::vector<SequenceId>{1});
  EXPECT_EQ(num_rows_of(plan, 2), 128) << "the other three blocks are still written to";
  driver.scheduler.finish(1);
  EXPECT_EQ(driver.blocks.num_free(), 0);
  driver.retire();
  EXPECT_EQ(driver.blocks.num_free(), 3);
  EXPECT_EQ(num_rows_of(driver.plan(), 2), 172);
}

TEST(SchedulerFaults, S18_AnIdThatIsThereIsRefused) {
  Driver driver(10, 4);
  driver.add(spec_of(7, 10, 10));
  EXPECT_THROW(driver.scheduler.add(spec_of(7, 20, 20)), Error);
  EXPECT_EQ(driver.scheduler.counts().num_waiting, 1);
}

TEST(SchedulerFaults, S19_TenThousandAndOneAbortsAtOnceAreServed) {
  Driver driver(10, 4);
  for (SequenceId id = 0; id < 10'001; ++id)
    driver.add(spec_of(id, 100, 10));
  driver.step();
  for (SequenceId id = 0; id < 10'001; ++id)
    driver.scheduler.finish(id);
  EXPECT_FALSE(driver.scheduler.has_work());
  EXPECT_TRUE(driver.all_is_free());
}

TEST(SchedulerFaults, S19_TenThousandAndOneSequencesExpireInOnePlan) {
  Driver driver(10, 4);
  for (SequenceId id = 0; id < 10'001; ++id) {
    SequenceSpec spec = spec_of(id, 100, 10);
    spec.deadline = 1;
    driver.add(spec);
  }
  driver.now = 2;
  EXPECT_EQ(driver.plan().expired.size(), 10'001u);
  EXPECT_FALSE(driver.scheduler.has_work());
}

TEST(SchedulerFaults, S20_APlanThatOnlyReportsIsNoStep) {
  Driver driver(10, 4);
  SequenceSpec spec = spec_of(1, 100, 10);
  spec.deadline = 1;
  driver.add(spec);
  driver.now = 2;
  EXPECT_FALSE(driver.plan().has_rows());
  driver.add(spec_of(2, 100, 10));
  EXPECT_EQ(driver.plan().step, 0);
}

TEST(SchedulerFaults, S21_MemoryReturnsDuringAStreakOfPrompts) {
  Driver driver(16, 8, options_of(2000, 8));
  for (SequenceId id = 0; id < 3; ++id)
    driver.add(spec_of(id, 2000, 1));
  EXPECT_EQ(driver.drain(), 3) << "a prompt a step, each in the blocks of the one before";
}

TEST(SchedulerFaults, S22_ALimitOfChunksHoldsToTheEndOfThePrompt) {
  Driver driver(10, 4);
  SequenceSpec spec = spec_of(1, 1000, 1);
  spec.max_chunk_rows = 300;
  driver.add(spec);
  for (const int64_t rows : {300, 300, 300, 100})
    EXPECT_EQ(num_rows_of(driver.step(), 1), rows);
}

TEST(SchedulerFaults, S26_TwoSchedulersShareNothing) {
  Driver a(10, 4);
  Driver b(10, 4);
  a.add(spec_of(1, 100, 10));
  b.add(spec_of(1, 200, 5));
  EXPECT_EQ(num_rows_of(a.step(), 1), 100);
  EXPECT_EQ(num_rows_of(b.step(), 1), 200);
  EXPECT_EQ(b.drain(), 4);
  EXPECT_EQ(a.drain(), 9);
}

TEST(SchedulerFaults, S30_BlocksAreTakenChunkByChunk) {
  Driver driver(100, 4, options_of(256, 4));
  driver.add(spec_of(1, 6000, 10));
  driver.step();
  EXPECT_EQ(driver.blocks.num_free(), 98);
  driver.step();
  EXPECT_EQ(driver.blocks.num_free(), 96);
}

TEST(SchedulerFaults, S31_ALongPromptSharesItsStepsWithDecodeRows) {
  Driver driver(400, 8, options_of(512, 8));
  for (SequenceId id = 0; id < 7; ++id)
    driver.add(spec_of(id, 10, 100));
  driver.step();
  driver.add(spec_of(9, 40'000, 10));
  for (int i = 0; i < 50; ++i) {
    const StepPlan plan = driver.step();
    EXPECT_EQ(plan.num_decode_rows, 7);
    EXPECT_EQ(num_rows_of(plan, 9), 512 - 7);
  }
}

TEST(SchedulerFaults, S33_ASequenceThatIsComputedAgainTakesASlotAnew) {
  Driver driver(4, 3);
  driver.add(spec_of(1, 300, 50));
  for (int i = 0; i < 10; ++i)
    driver.step();
  driver.add(urgent(2, 300, 1));
  driver.add(urgent(3, 10, 5));
  EXPECT_EQ(driver.plan().preempted, std::vector<SequenceId>{1});
  driver.retire();
  const StepPlan again = driver.step();
  ASSERT_NE(rows_of(again, 1), nullptr);
  EXPECT_TRUE(rows_of(again, 1)->admitted);
  EXPECT_EQ(rows_of(again, 1)->start, 0);
  EXPECT_EQ(rows_of(again, 1)->num_rows, 310) << "its prompt and what it had drawn";
  ASSERT_NE(rows_of(again, 3), nullptr);
  EXPECT_NE(rows_of(again, 1)->slot, rows_of(again, 3)->slot);
  driver.drain();
  EXPECT_TRUE(driver.all_is_free());
  EXPECT_EQ(driver.scheduler.counts().num_recomputed_tokens, 309);
}

TEST(SchedulerFaults, Z1_PromptsArePlannedWhileTheStepBeforeRuns) {
  Driver driver(100, 4, options_of(256, 4));
  driver.add(spec_of(1, 600, 3));
  EXPECT_EQ(num_rows_of(driver.plan(), 1), 256);
  EXPECT_EQ(num_rows_of(driver.plan(), 1), 256);
  EXPECT_EQ(num_rows_of(driver.plan(), 1), 88);
  const StepPlan decode = driver.plan();
  EXPECT_EQ(decode.num_decode_rows, 1);
  EXPECT_EQ(rows_of(decode, 1)->start, 600) << "the row of a token that is not yet drawn";
}

TEST(SchedulerFaults, Z6_OnlyAStopTokenCostsARow) {
  Driver driver(100, 4);
  driver.add(spec_of(1, 10, 3));
  int64_t num_rows = 0;
  for (int i = 0; i < 6; ++i)
    num_rows += driver.plan().num_decode_rows;
  EXPECT_EQ(num_rows, 2) << "the third token is the last: no row is planned for it";
}

}  // namespace
}  // namespace di::sched
