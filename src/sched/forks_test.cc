// Several choices of one prompt: they share its blocks where they can, and compute it where not.
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

SequenceSpec choice_of(SequenceId parent, SequenceId id, const SequenceSpec& spec) {
  SequenceSpec choice = spec;
  choice.id = id;
  choice.fork_of = parent;
  return choice;
}

TEST(SchedulerForks, ChoicesBeginBehindTheirParentsPrompt) {
  Driver driver(20, 4, options_of(250, 4));
  const SequenceSpec spec = spec_of(1, 300, 10);
  driver.add(spec);
  driver.add(choice_of(1, 2, spec));
  driver.add(choice_of(1, 3, spec));
  EXPECT_TRUE(driver.step().forks.empty());
  const StepPlan plan = driver.step();
  ASSERT_EQ(plan.forks.size(), 2u);
  EXPECT_EQ(plan.num_prefill_rows, 50);
  const Fork& fork = plan.forks[0];
  EXPECT_EQ(fork.parent, 1);
  EXPECT_EQ(fork.child, 2);
  EXPECT_NE(fork.child_slot, fork.parent_slot);
  EXPECT_EQ(fork.blocks.size(), 3u);
  EXPECT_EQ(fork.tail_to, fork.blocks[2]);
  EXPECT_EQ(driver.blocks.num_shares(fork.blocks[0]), 3);
  EXPECT_EQ(driver.step().num_decode_rows, 3);
  EXPECT_EQ(driver.drain(), 8);
  EXPECT_TRUE(driver.all_is_free());
}

TEST(SchedulerForks, APromptThatEndsOnABlocksEdgeIsForkedWithoutACopy) {
  Driver driver(4, 2);
  const SequenceSpec spec = spec_of(1, 256, 10);
  driver.add(spec);
  driver.add(choice_of(1, 2, spec));
  const StepPlan plan = driver.step();
  ASSERT_EQ(plan.forks.size(), 1u);
  EXPECT_EQ(plan.forks[0].tail_from, -1);
  EXPECT_EQ(plan.forks[0].tail_to, -1);
  EXPECT_EQ(driver.blocks.num_free(), 2);
  driver.drain();
  EXPECT_TRUE(driver.all_is_free());
}

TEST(SchedulerForks, AChoiceWithoutASlotComputesThePromptItself) {
  Driver driver(10, 1, options_of(1000, 2));
  const SequenceSpec spec = spec_of(1, 300, 2);
  driver.add(spec);
  driver.add(choice_of(1, 2, spec));
  EXPECT_TRUE(driver.step().forks.empty());
  driver.step();
  EXPECT_EQ(num_rows_of(driver.step(), 2), 300);
  driver.drain();
  EXPECT_TRUE(driver.all_is_free());
}

TEST(SchedulerForks, ChoicesOfAnAbortedPromptComputeItThemselves) {
  Driver driver(10, 4, options_of(200, 4));
  const SequenceSpec spec = spec_of(1, 300, 2);
  driver.add(spec);
  driver.add(choice_of(1, 2, spec));
  driver.add(choice_of(1, 3, spec));
  driver.step();
  driver.scheduler.finish(1);
  EXPECT_GT(driver.step().num_prefill_rows, 0);
  EXPECT_GE(driver.drain(), 0);
  EXPECT_TRUE(driver.all_is_free());
}

TEST(SchedulerForks, ChoicesWaitForAPromptThatIsComputedAgain) {
  Driver driver(4, 4, options_of(200, 4));
  const SequenceSpec spec = spec_of(1, 300, 2);
  driver.add(spec);
  driver.add(choice_of(1, 2, spec));
  driver.step();
  SequenceSpec urgent = spec_of(5, 400, 1);
  urgent.priority = 1;
  driver.add(urgent);
  EXPECT_EQ(driver.step().preempted, std::vector<SequenceId>{1});
  std::size_t num_forks = 0;
  while (driver.scheduler.has_work())
    num_forks += driver.step().forks.size();
  EXPECT_EQ(num_forks, 1u);
  EXPECT_TRUE(driver.all_is_free());
}

TEST(SchedulerForks, AChoiceWithAnotherPromptIsRefused) {
  Driver driver(10, 4);
  driver.add(spec_of(1, 300, 2));
  EXPECT_THROW(driver.scheduler.add(choice_of(1, 2, spec_of(1, 301, 2))), Error);
}

}  // namespace
}  // namespace di::sched
