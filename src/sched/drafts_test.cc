// Rows for drafts: who gets how many, what they count as, and what is left of them when they are
// rejected. The random world has them, too.
#include <gtest/gtest.h>

#include "sched/test_driver.h"

namespace di::sched {
namespace {

NumDrafts each(int64_t count) {
  return [count](SequenceId) { return count; };
}

SchedulerOptions options_of(int64_t rows, int64_t seqs) {
  SchedulerOptions options;
  options.max_num_batched_tokens = rows;
  options.max_num_seqs = seqs;
  return options;
}

/// Adds sequences 1 … count; then two steps: all have drawn two tokens.
void decode_all(Driver& driver, int64_t count, int64_t prompt_tokens, int64_t max_tokens) {
  for (SequenceId id = 1; id <= count; ++id)
    driver.add(spec_of(id, prompt_tokens, max_tokens));
  driver.step();
  ASSERT_EQ(driver.step().num_prefill_rows, 0);
}

TEST(Drafts, EverybodyVerifiesAllThatFit) {
  Driver driver(10, 4, options_of(40, 4));
  decode_all(driver, 4, 10, 100);
  const StepPlan plan = driver.scheduler.plan(0, each(5));
  EXPECT_EQ(plan.num_draft_rows, 20);
  EXPECT_EQ(plan.num_decode_rows, 4);
}

TEST(Drafts, PromptsGoFirst) {
  Driver driver(20, 4, options_of(40, 4));
  decode_all(driver, 3, 10, 100);
  driver.add(spec_of(9, 32, 5));
  const StepPlan plan = driver.scheduler.plan(0, each(5));
  EXPECT_EQ(plan.num_prefill_rows, 32);
  EXPECT_EQ(plan.num_draft_rows, 5);
  EXPECT_EQ(rows_of(plan, 1)->num_drafts, 2);
  EXPECT_EQ(rows_of(plan, 2)->num_drafts, 2);
  EXPECT_EQ(rows_of(plan, 3)->num_drafts, 1);
  EXPECT_EQ(rows_of(plan, 9)->num_drafts, 0);
  EXPECT_EQ(plan.num_rows(), 40);
}

TEST(Drafts, NobodyDraftsBeyondMaxTokens) {
  Driver driver(10, 4);
  decode_all(driver, 1, 10, 6);
  const StepPlan plan = driver.scheduler.plan(0, each(5));
  EXPECT_EQ(rows_of(plan, 1)->num_drafts, 3) << "two tokens are drawn, one more for sure";
  EXPECT_FALSE(driver.scheduler.plan(0, each(5)).has_rows()) << "all might be drawn";
  driver.scheduler.retire(2, {.draws = {{1, 2}}, .num_draft_rows = 3});
  driver.scheduler.check_integrity();
  const StepPlan next = driver.scheduler.plan(0, each(5));
  EXPECT_EQ(rows_of(next, 1)->start, 13);
  EXPECT_EQ(rows_of(next, 1)->num_drafts, 1);
}

TEST(Drafts, AStartIsTheLatestThatItCanBe) {
  Driver driver(10, 4);
  decode_all(driver, 1, 10, 100);
  EXPECT_EQ(rows_of(driver.scheduler.plan(0, each(3)), 1)->start, 11);
  EXPECT_EQ(rows_of(driver.scheduler.plan(0, each(3)), 1)->start, 15);
  driver.scheduler.retire(2, {.draws = {{1, 1}}, .num_draft_rows = 3});
  EXPECT_EQ(rows_of(driver.scheduler.plan(0, each(3)), 1)->start, 16);
  driver.scheduler.retire(3, {.draws = {{1, 4}}, .num_draft_rows = 3});
  driver.scheduler.retire(4, {.draws = {{1, 2}}, .num_draft_rows = 3});
  EXPECT_EQ(rows_of(driver.scheduler.plan(0, each(3)), 1)->start, 18);
  driver.scheduler.check_integrity();
}

TEST(Drafts, ABlockThatARejectedDraftTookIsUsedLater) {
  Driver driver(10, 4);
  decode_all(driver, 1, 125, 100);
  const StepPlan plan = driver.scheduler.plan(0, each(5));
  EXPECT_EQ(rows_of(plan, 1)->start, 126);
  EXPECT_EQ(rows_of(plan, 1)->num_drafts, 5);
  EXPECT_EQ(rows_of(plan, 1)->new_blocks.size(), 1U);
  driver.scheduler.retire(2, {.draws = {{1, 1}}, .num_draft_rows = 5});
  driver.scheduler.check_integrity();
  for (int64_t step = 3; step < 8; ++step) {
    const StepPlan next = driver.scheduler.plan(0);
    EXPECT_TRUE(rows_of(next, 1)->new_blocks.empty());
    driver.scheduler.retire(step, {.draws = {{1, 1}}});
  }
}

TEST(Drafts, NobodyGivesWayForADraft) {
  Driver driver(3, 4);
  driver.add(spec_of(2, 20, 20));
  decode_all(driver, 1, 125, 100);
  const StepPlan plan = driver.scheduler.plan(0, each(5));
  EXPECT_EQ(rows_of(plan, 1)->num_drafts, 1) << "as far as its block goes";
  EXPECT_EQ(rows_of(plan, 2)->num_drafts, 5);
  EXPECT_TRUE(plan.preempted.empty());
}

TEST(Drafts, AStepThatYieldsNothingOfASequenceIsRepeated) {
  Driver driver(10, 4);
  decode_all(driver, 1, 10, 100);
  driver.scheduler.plan(0, each(5));
  driver.scheduler.retire(2, {.draws = {{1, 0}}, .num_draft_rows = 5});
  driver.scheduler.check_integrity();
  EXPECT_EQ(rows_of(driver.scheduler.plan(0), 1)->start, 11);
}

TEST(Drafts, WhoGivesWayWithDraftsInFlightIsComputedAgainUpToItsTokens) {
  Driver driver(4, 4);
  decode_all(driver, 2, 200, 50);
  driver.scheduler.plan(0, each(5));
  SequenceSpec urgent = spec_of(9, 400, 100);
  urgent.priority = 1;
  driver.add(urgent);
  const StepPlan plan = driver.scheduler.plan(0, each(5));
  EXPECT_EQ(plan.preempted.size(), 2U);
  driver.scheduler.retire(2, {.draws = {{1, 3}, {2, 1}}, .num_draft_rows = 10});
  driver.scheduler.check_integrity();
  EXPECT_EQ(
      driver.scheduler.counts().waiting_tokens, 202 + 3 + 202 + 1 + (plan.has_rows() ? 0 : 400)
  );
}

}  // namespace
}  // namespace di::sched
