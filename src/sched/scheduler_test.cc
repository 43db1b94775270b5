// The policy: lanes, priorities, users, deadlines, and who holds memory until when.
#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "sched/test_driver.h"

namespace di::sched {
namespace {

SchedulerOptions options_of(int64_t max_num_batched_tokens, int64_t max_num_seqs) {
  SchedulerOptions options;
  options.max_num_batched_tokens = max_num_batched_tokens;
  options.max_num_seqs = max_num_seqs;
  return options;
}

TEST(Scheduler, OptionsThatCouldNeverRunAreRefused) {
  cache::BlockPool blocks(4);
  cache::SlotPool slots(4);
  EXPECT_THROW(Scheduler(options_of(10, 0), blocks, slots), Error);
  EXPECT_THROW(Scheduler(options_of(10, 11), blocks, slots), Error);
  SchedulerOptions options;
  options.min_prefill_rows = 0;
  EXPECT_THROW(Scheduler(options, blocks, slots), Error);
  options = {};
  options.max_step_seconds = -1;
  EXPECT_THROW(Scheduler(options, blocks, slots), Error);
}

TEST(Scheduler, SequencesThatCouldNeverRunAreRefused) {
  Driver driver(2, 2);
  EXPECT_THROW(driver.scheduler.add(spec_of(1, 0, 1)), Error);
  EXPECT_THROW(driver.scheduler.add(spec_of(1, 1, 0)), Error);
  EXPECT_THROW(driver.scheduler.add(spec_of(1, 200, 57)), Error);
  EXPECT_THROW(driver.scheduler.add(spec_of(kNoSequence, 1, 1)), Error);
  driver.add(spec_of(1, 200, 56));
}

TEST(Scheduler, AShortPromptPassesALongOneWithHalfOfTheRows) {
  Driver driver(400, 8, options_of(1000, 8));
  driver.add(spec_of(1, 20'000, 1));
  driver.step();
  driver.add(spec_of(2, 800, 1));
  const StepPlan first = driver.step();
  EXPECT_EQ(num_rows_of(first, 1), 500);
  EXPECT_EQ(num_rows_of(first, 2), 500);
  const StepPlan second = driver.step();
  EXPECT_EQ(num_rows_of(second, 1), 700) << "what the short lane leaves, the long prompt takes";
  EXPECT_EQ(num_rows_of(second, 2), 300);
}

TEST(Scheduler, ALongPromptIsNotStarvedByShortOnes) {
  Driver driver(400, 16, options_of(1000, 16));
  driver.add(spec_of(0, 20'000, 1));
  SequenceId next = 1;
  int64_t steps = 0;
  for (bool ended = false; !ended; ++steps) {
    for (int i = 0; i < 5; ++i)
      driver.add(spec_of(next++, 200, 1));
    const StepPlan plan = driver.step();
    ended = rows_of(plan, 0) != nullptr && rows_of(plan, 0)->samples;
  }
  EXPECT_LE(steps, 40);
}

TEST(Scheduler, AHigherPriorityTakesAllRowsItCanUse) {
  Driver driver(400, 8, options_of(1000, 8));
  driver.add(spec_of(1, 5000, 1));
  SequenceSpec urgent = spec_of(2, 1500, 1);
  urgent.priority = 1;
  driver.add(urgent);
  EXPECT_EQ(num_rows_of(driver.step(), 2), 1000);
  const StepPlan second = driver.step();
  EXPECT_EQ(num_rows_of(second, 2), 500);
  EXPECT_EQ(num_rows_of(second, 1), 500);
}

TEST(Scheduler, LowerPrioritiesGiveWayToAHigherOneAndToNobodyElse) {
  Driver driver(8, 8, options_of(2000, 8));
  driver.add(spec_of(1, 500, 10));
  driver.add(spec_of(2, 300, 10));
  driver.step();
  driver.add(spec_of(3, 800, 10));
  EXPECT_TRUE(driver.step().preempted.empty());
  SequenceSpec urgent = spec_of(4, 400, 10);
  urgent.priority = 1;
  driver.add(urgent);
  const StepPlan plan = driver.step();
  EXPECT_EQ(plan.preempted, std::vector<SequenceId>{2}) << "the least work lost";
  EXPECT_EQ(num_rows_of(plan, 4), 400);
  EXPECT_EQ(num_rows_of(plan, 1), 1);
  EXPECT_GE(driver.drain(), 0);
}

TEST(Scheduler, NobodyGivesWayWhenThatWouldNotLetTheHigherPriorityIn) {
  Driver driver(8, 8, options_of(2000, 8));
  SequenceSpec high = spec_of(1, 500, 10);
  high.priority = 1;
  driver.add(high);
  driver.add(spec_of(2, 300, 10));
  driver.step();
  high.id = 3;
  high.prompt_tokens = 900;
  driver.add(high);
  EXPECT_TRUE(driver.step().preempted.empty());
}

TEST(Scheduler, UsersTakeTurnsByTheRowsTheyWereGiven) {
  Driver driver(400, 64, options_of(100, 64));
  SequenceId next = 0;
  for (int i = 0; i < 40; ++i) {
    SequenceSpec spec = spec_of(next++, 100, 1);
    spec.user = 1;
    driver.add(spec);
  }
  for (int i = 0; i < 10; ++i)
    driver.step();
  SequenceSpec other = spec_of(100, 50, 1);
  other.user = 2;
  driver.add(other);
  const StepPlan plan = driver.step();
  EXPECT_EQ(num_rows_of(plan, 100), 50) << "one who was given nothing yet passes the queue";
}

TEST(Scheduler, TheEarliestDeadlineIsServedFirstInTheDueLane) {
  Driver driver(400, 8, options_of(1000, 8));
  SequenceSpec relaxed = spec_of(1, 4000, 1);
  relaxed.deadline = 100;
  SequenceSpec pressing = spec_of(2, 5000, 1);
  pressing.deadline = 5;
  driver.add(relaxed);
  driver.add(pressing);
  const StepPlan plan = driver.step();
  EXPECT_EQ(num_rows_of(plan, 2), 500);
  EXPECT_EQ(num_rows_of(plan, 1), 500) << "the shorter one has the other lane";
}

TEST(Scheduler, PassedDeadlinesEndWaitingAndRunningSequences) {
  Driver driver(10, 1, options_of(1000, 1));
  SequenceSpec spec = spec_of(1, 100, 50);
  spec.deadline = 1;
  driver.add(spec);
  driver.step();
  spec.id = 2;
  driver.add(spec);
  spec.id = 3;
  spec.ready = false;
  driver.add(spec);
  driver.now = 1;
  EXPECT_TRUE(driver.step().expired.empty());
  driver.now = 1.5;
  EXPECT_EQ(driver.step().expired, (std::vector<SequenceId>{1, 2, 3}));
  EXPECT_TRUE(driver.all_is_free());
}

TEST(Scheduler, AnOverdueSequenceWaitsForOneTurnOfOthersAtMost) {
  Driver driver(10, 8, options_of(2000, 8));
  driver.add(spec_of(1, 500, 100));
  driver.step();
  driver.add(spec_of(2, 1000, 1));
  driver.now = 11;
  SequenceSpec late = spec_of(3, 100, 20);
  late.arrival = 11;
  driver.add(late);
  EXPECT_NE(rows_of(driver.step(), 3), nullptr) << "the turn of the short lane";
  late.id = 4;
  driver.add(late);
  EXPECT_EQ(rows_of(driver.step(), 4), nullptr) << "memory is kept for the overdue one";
  while (driver.scheduler.counts().num_waiting == 2)
    EXPECT_EQ(rows_of(driver.step(), 4), nullptr);
  EXPECT_GE(driver.drain(), 0);
}

TEST(Scheduler, ASequenceThatGaveWayReturnsBeforeOthersBegin) {
  Driver driver(4, 4);
  driver.add(spec_of(1, 300, 50));
  driver.step();
  SequenceSpec urgent = spec_of(2, 300, 20);
  urgent.priority = 1;
  driver.add(urgent);
  EXPECT_EQ(driver.step().preempted, std::vector<SequenceId>{1});
  driver.add(spec_of(3, 10, 20));
  EXPECT_EQ(driver.scheduler.counts().num_running, 1);
  while (driver.scheduler.counts().num_waiting == 2)
    EXPECT_EQ(rows_of(driver.step(), 3), nullptr);
  EXPECT_GE(driver.drain(), 0);
}

TEST(Scheduler, AStepWithDecodeRowsKeepsItsTarget) {
  SchedulerOptions options = options_of(2048, 8);
  options.max_step_seconds = 0.05;
  Driver driver(400, 8, options);
  driver.add(spec_of(1, 10, 500));
  driver.step(0.011);
  driver.add(spec_of(2, 40'000, 1));
  const auto seconds = [](const StepPlan& plan) {
    return 0.01 + 0.0005 * static_cast<double>(plan.num_decode_rows) +
           0.0001 * static_cast<double>(plan.num_prefill_rows);
  };
  int64_t most_rows = 0;
  for (int i = 0; i < 60; ++i) {
    const StepPlan plan = driver.plan();
    EXPECT_GE(num_rows_of(plan, 2), options.min_prefill_rows);
    EXPECT_LE(seconds(plan), 0.0505);
    most_rows = std::max(most_rows, num_rows_of(plan, 2));
    driver.retire(seconds(plan));
  }
  EXPECT_GE(most_rows, 390) << "395 rows take 0.05 s";
}

TEST(Scheduler, MemoryOfAnEndedSequenceReturnsWithTheLastStepThatReferencesIt) {
  Driver driver(2, 2, options_of(300, 2));
  driver.add(spec_of(1, 200, 50));
  driver.plan();
  driver.plan();
  driver.scheduler.finish(1);
  driver.add(spec_of(2, 200, 50));
  EXPECT_FALSE(driver.plan().has_rows());
  driver.retire();
  EXPECT_FALSE(driver.plan().has_rows());
  driver.retire();
  EXPECT_EQ(num_rows_of(driver.plan(), 2), 200);
}

TEST(Scheduler, ASequenceThatTheDeviceEndedGetsNoFurtherRow) {
  Driver driver(10, 4);
  driver.add(spec_of(1, 100, 50));
  driver.plan();
  driver.plan();
  driver.scheduler.retire(0, {.draws = {{1, 1}}});
  driver.scheduler.retire(1, {.draws = {{1, 0, true}}});
  driver.scheduler.check_integrity();
  EXPECT_FALSE(driver.scheduler.plan(0).has_rows());
  driver.scheduler.finish(1);
  EXPECT_TRUE(driver.all_is_free());
}

TEST(Scheduler, CountsSayWhatWaitsAndRuns) {
  Driver driver(10, 4, options_of(200, 4));
  driver.add(spec_of(1, 300, 50));
  driver.add(spec_of(2, 70, 50));
  EXPECT_EQ(driver.scheduler.counts().waiting_tokens, 370);
  driver.step();
  const SchedulerCounts counts = driver.scheduler.counts();
  EXPECT_EQ(counts.num_running, 2);
  EXPECT_EQ(counts.num_waiting, 0);
  EXPECT_EQ(counts.num_chunked, 1);
  EXPECT_EQ(counts.waiting_tokens, 0);
  EXPECT_EQ(counts.blocks_used, 3);
  EXPECT_EQ(counts.blocks_total, 10);
  EXPECT_EQ(counts.slots_used, 2);
  EXPECT_EQ(counts.slots_total, 4);
}

}  // namespace
}  // namespace di::sched
