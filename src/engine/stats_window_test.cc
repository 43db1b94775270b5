#include "engine/stats_window.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace di::engine {
namespace {

constexpr sched::SchedulerCounts kIdle{};

/// A step of one decode row that took 10 ms.
StepRecord step_at(double time) {
  StepRecord step;
  step.time = time;
  step.step_seconds = 0.01;
  step.plan_seconds = 0.0001;
  step.apply_seconds = 0.0002;
  step.num_decode_rows = 1;
  step.num_output_tokens = 1;
  return step;
}

FinishedChoice choice_of(FinishReason reason) {
  return {
      .reason = reason,
      .prompt_tokens = 100,
      .output_tokens = 11,
      .ttft_seconds = 0.5,
      .total_seconds = 1.5};
}

TEST(StatsWindow, RatesCountWhatIsLaterThanTheEdge) {
  StatsWindow window({.window_seconds = 10}, 0);
  for (int t = 1; t <= 20; ++t)
    window.add_step(step_at(t));
  const Stats at_step = window.stats(20, kIdle);
  EXPECT_EQ(at_step.window_steps, 10) << "11 … 20; the step on the edge is out";
  EXPECT_EQ(at_step.window_seconds, 10);
  EXPECT_DOUBLE_EQ(*at_step.steps_per_second, 1);
  EXPECT_DOUBLE_EQ(*at_step.output_tokens_per_second, 1);
  EXPECT_DOUBLE_EQ(*at_step.device_use, 0.01);
  EXPECT_EQ(window.stats(20.5, kIdle).window_steps, 10);
  EXPECT_EQ(window.stats(21, kIdle).window_steps, 9);
  EXPECT_DOUBLE_EQ(*window.stats(21, kIdle).steps_per_second, 0.9);
}

TEST(StatsWindow, ALoneStepHasARate) {
  StatsWindow window({}, 100);
  window.add_step(step_at(102));
  const Stats stats = window.stats(102, kIdle);
  EXPECT_EQ(stats.window_seconds, 2) << "a young window begins at the start";
  EXPECT_DOUBLE_EQ(*stats.steps_per_second, 0.5);
  EXPECT_DOUBLE_EQ(*stats.last_steps_per_second, 100);
  EXPECT_DOUBLE_EQ(*stats.last_output_tokens_per_second, 100);
}

TEST(StatsWindow, ARestartEmptiesTheWindowAndKeepsTheTotals) {
  StatsWindow window({.window_seconds = 10}, 0);
  StepRecord step = step_at(1);
  step.ttft_seconds = {0.5};
  window.add_step(std::move(step));
  window.restart(2);
  window.add_step(step_at(3));
  const Stats stats = window.stats(4, kIdle);
  EXPECT_EQ(stats.window_steps, 1);
  EXPECT_EQ(stats.window_seconds, 2);
  EXPECT_FALSE(stats.ttft_seconds);
  EXPECT_EQ(stats.total_steps, 2);
  EXPECT_EQ(stats.uptime_seconds, 4);
}

TEST(StatsWindow, WithoutTimeThereAreNoRates) {
  const StatsWindow window({.peak_flops = 1}, 5);
  const Stats stats = window.stats(5, kIdle);
  EXPECT_EQ(stats.window_seconds, 0);
  EXPECT_FALSE(stats.steps_per_second);
  EXPECT_FALSE(stats.flops_utilization);
  EXPECT_FALSE(stats.block_use) << "there are no blocks";
  EXPECT_EQ(stats_json(stats).dump().find("NaN"), std::string::npos);
  EXPECT_EQ(stats_line(stats).find("nan"), std::string::npos);
}

TEST(StatsWindow, AStepWithoutDurationHasNoRateOfItsOwn) {
  StatsWindow window({}, 0);
  StepRecord step = step_at(1);
  step.step_seconds = 0;
  window.add_step(step);
  const Stats stats = window.stats(1, kIdle);
  EXPECT_FALSE(stats.last_steps_per_second);
  EXPECT_FALSE(stats.last_output_tokens_per_second);
  EXPECT_DOUBLE_EQ(*stats.steps_per_second, 1);
}

TEST(StatsWindow, AfterHoursOfIdlenessOnlyTotalsRemain) {
  StatsWindow window({.window_seconds = 10}, 0);
  StepRecord step = step_at(1);
  step.ttft_seconds = {0.5};
  step.finished = {choice_of(FinishReason::kEos)};
  step.num_prefill_rows = 7;
  window.add_request();
  window.add_step(step);
  const Stats stats = window.stats(4 * 3600, kIdle);
  EXPECT_EQ(stats.window_seconds, 10);
  EXPECT_DOUBLE_EQ(*stats.steps_per_second, 0);
  EXPECT_DOUBLE_EQ(*stats.output_tokens_per_second, 0);
  EXPECT_DOUBLE_EQ(*stats.device_use, 0);
  EXPECT_EQ(stats.num_finished, 0);
  EXPECT_FALSE(stats.step_seconds);
  EXPECT_FALSE(stats.ttft_seconds);
  EXPECT_FALSE(stats.output_token_seconds);
  EXPECT_FALSE(stats.last_decode_rows);
  EXPECT_FALSE(stats.mean_prompt_tokens);
  EXPECT_FALSE(stats.decode_step_share);
  EXPECT_EQ(stats.uptime_seconds, 4 * 3600);
  EXPECT_EQ(stats.total_requests, 1);
  EXPECT_EQ(stats.total_steps, 1);
  EXPECT_EQ(stats.total_prefill_tokens, 7);
  EXPECT_EQ(stats.total_output_tokens, 1);
}

TEST(StatsWindow, AWindowOfStepsBeginsWhereTheStepBeforeItEnded) {
  StatsWindow window({.window_seconds = 0, .window_steps = 3}, 0);
  for (const double time : {1, 2, 4, 8, 16})
    window.add_step(step_at(time));
  const Stats stats = window.stats(16, kIdle);
  EXPECT_EQ(stats.window_steps, 3);
  EXPECT_EQ(stats.window_seconds, 14) << "since the step at 2, which left";
  EXPECT_DOUBLE_EQ(*stats.steps_per_second, 3.0 / 14);
  EXPECT_DOUBLE_EQ(*window.stats(32, kIdle).steps_per_second, 3.0 / 30);
}

TEST(StatsWindow, TheTighterOfTwoLimitsHolds) {
  StatsWindow window({.window_seconds = 5, .window_steps = 3}, 0);
  for (const double time : {1, 2, 3, 4})
    window.add_step(step_at(time));
  EXPECT_EQ(window.stats(4, kIdle).window_steps, 3);
  EXPECT_EQ(window.stats(4, kIdle).window_seconds, 3);
  EXPECT_EQ(window.stats(8, kIdle).window_steps, 1);
  EXPECT_EQ(window.stats(8, kIdle).window_seconds, 5);
}

// The original kept every finished request until somebody logged, which offline nobody did.
TEST(StatsWindow, IsBoundedWhenNobodyReadsIt) {
  StatsWindow window({.window_seconds = 0}, 0);
  constexpr int kSteps = 50'000;
  for (int i = 1; i <= kSteps; ++i) {
    StepRecord step = step_at(i);
    step.ttft_seconds = {1.0 * i, 1.0 * i};
    step.finished = {choice_of(FinishReason::kLength)};
    window.add_step(step);
    window.add_ending(i + 0.5, choice_of(FinishReason::kAborted));
  }
  const Stats stats = window.stats(kSteps + 0.5, kIdle);
  constexpr auto kHalf = static_cast<int64_t>(StatsWindow::kMaxSlices) / 2;
  EXPECT_EQ(stats.window_steps, kHalf) << "a step and an abort take a slice each";
  EXPECT_EQ(stats.window_seconds, static_cast<double>(kHalf));
  EXPECT_DOUBLE_EQ(*stats.steps_per_second, 1);
  EXPECT_DOUBLE_EQ(*stats.finished_per_second, 1);
  EXPECT_DOUBLE_EQ(stats.ttft_seconds->max, kSteps);
  EXPECT_DOUBLE_EQ(
      stats.ttft_seconds->p50, kSteps - static_cast<double>(StatsWindow::kMaxSamples) / 4
  ) << "the newest samples are kept";
  EXPECT_EQ(stats.total_steps, kSteps);
  EXPECT_EQ(stats.total_endings[static_cast<std::size_t>(FinishReason::kLength)], kSteps);
  EXPECT_EQ(stats.total_endings[static_cast<std::size_t>(FinishReason::kAborted)], kSteps);
}

TEST(StatsWindow, EndingsAreCountedByTheirReason) {
  StatsWindow window({}, 0);
  StepRecord step = step_at(1);
  for (const FinishReason reason :
       {FinishReason::kEos,
        FinishReason::kStopToken,
        FinishReason::kStopString,
        FinishReason::kLength,
        FinishReason::kContext,
        FinishReason::kFailed})
    step.finished.push_back(choice_of(reason));
  window.add_step(step);
  window.add_ending(2, choice_of(FinishReason::kAborted));
  window.add_ending(2, choice_of(FinishReason::kTimeout));
  window.add_refusal();
  const Stats stats = window.stats(3, kIdle);
  EXPECT_EQ(stats.num_finished, 5);
  EXPECT_EQ(stats.num_aborted, 2);
  EXPECT_EQ(stats.num_failed, 1);
  EXPECT_EQ(stats.total_refused, 1);
  EXPECT_DOUBLE_EQ(*stats.mean_prompt_tokens, 100) << "of those that finished";
  EXPECT_DOUBLE_EQ(*stats.mean_output_tokens, 11);
  EXPECT_DOUBLE_EQ(*stats.mean_context_tokens, 105);
  EXPECT_EQ(window.stats(11.5, kIdle).num_finished, 0) << "the step left the window";
  EXPECT_EQ(window.stats(11.5, kIdle).num_aborted, 2);
  EXPECT_EQ(window.stats(12, kIdle).num_aborted, 0);
}

TEST(StatsWindow, LatenciesAreThoseOfTheWindow) {
  StatsWindow window({.window_seconds = 10}, 0);
  for (int t = 1; t <= 20; ++t) {
    StepRecord step = step_at(t);
    step.ttft_seconds = {0.1 * t};
    window.add_step(step);
  }
  window.add_ending(20, {.output_tokens = 1, .ttft_seconds = 9, .total_seconds = 9});
  EXPECT_FALSE(window.stats(20, kIdle).output_token_seconds) << "one token has no time between";
  window.add_ending(20, choice_of(FinishReason::kEos));
  const Stats stats = window.stats(20, kIdle);
  EXPECT_DOUBLE_EQ(stats.ttft_seconds->p50, 1.5);
  EXPECT_DOUBLE_EQ(stats.ttft_seconds->max, 2.0);
  EXPECT_DOUBLE_EQ(stats.ttft_seconds->mean, 1.55);
  EXPECT_DOUBLE_EQ(stats.output_token_seconds->p99, 0.1);
  EXPECT_DOUBLE_EQ(stats.step_seconds->p50, 0.01);
  EXPECT_DOUBLE_EQ(stats.plan_seconds->p90, 0.0001);
  EXPECT_DOUBLE_EQ(stats.apply_seconds->max, 0.0002);
}

TEST(StatsWindow, SharesAreOfStepsRowsAndPromptTokens) {
  StatsWindow window({.max_num_batched_tokens = 100}, 0);
  window.add_step(step_at(1));
  StepRecord mixed = step_at(2);
  mixed.num_prefill_rows = 59;
  mixed.num_cached_tokens = 41;
  mixed.num_preempted = 3;
  window.add_step(mixed);
  const Stats stats = window.stats(2, kIdle);
  EXPECT_DOUBLE_EQ(*stats.token_budget_use, 61.0 / 200);
  EXPECT_DOUBLE_EQ(*stats.prefill_step_share, 0.5);
  EXPECT_DOUBLE_EQ(*stats.decode_step_share, 1);
  EXPECT_DOUBLE_EQ(*stats.prompt_cache_share, 0.41);
  EXPECT_DOUBLE_EQ(*stats.prefill_tokens_per_second, 29.5);
  EXPECT_EQ(stats.num_preempted, 3);
  EXPECT_EQ(stats.last_prefill_rows, 59);
  EXPECT_EQ(stats.last_decode_rows, 1);
}

TEST(StatsWindow, KeysAreThoseThatTheLastRowsSee) {
  StepRecord step = step_at(1);
  step.add_keys(/*start=*/40, /*num_rows=*/1);
  step.add_keys(/*start=*/0, /*num_rows=*/8);
  step.add_keys(/*start=*/99, /*num_rows=*/1);
  StatsWindow window({}, 0);
  window.add_step(step);
  const Stats stats = window.stats(1, kIdle);
  EXPECT_EQ(stats.last_query_key_pairs, 41 + 64 + 100);
  EXPECT_EQ(stats.last_max_keys, 100);
  EXPECT_EQ(stats.last_min_keys, 8);
}

TEST(StatsWindow, GaugesAreTheSchedulers) {
  const sched::SchedulerCounts counts{
      .num_waiting = 3,
      .num_running = 5,
      .num_chunked = 1,
      .waiting_tokens = 700,
      .blocks_used = 30,
      .blocks_total = 40,
      .slots_used = 5,
      .slots_total = 8,
      .num_preemptions = 9,
      .num_recomputed_tokens = 1234};
  const Stats stats = StatsWindow({}, 0).stats(1, counts);
  EXPECT_EQ(stats.num_waiting, 3);
  EXPECT_EQ(stats.num_running, 5);
  EXPECT_EQ(stats.num_chunked, 1);
  EXPECT_EQ(stats.waiting_tokens, 700);
  EXPECT_EQ(stats.blocks_used, 30);
  EXPECT_EQ(stats.slots_total, 8);
  EXPECT_DOUBLE_EQ(*stats.block_use, 0.75);
  EXPECT_DOUBLE_EQ(*stats.slot_use, 0.625);
  EXPECT_EQ(stats.total_preempted, 9);
  EXPECT_EQ(stats.total_recomputed_tokens, 1234);
}

// The original refused to start on a machine whose peak it did not know.
TEST(StatsWindow, UtilizationIsAbsentWithoutAPeak) {
  StepRecord step = step_at(2);
  step.flops = {.attention = 100, .total = 1000, .unweighted = 600};
  StatsWindow unknown({}, 0);
  StatsWindow known({.peak_flops = 2000}, 0);
  unknown.add_step(step);
  known.add_step(step);
  EXPECT_DOUBLE_EQ(*unknown.stats(2, kIdle).flops_per_second, 500);
  EXPECT_DOUBLE_EQ(*unknown.stats(2, kIdle).attention_flops_per_second, 50);
  EXPECT_FALSE(unknown.stats(2, kIdle).flops_utilization);
  EXPECT_DOUBLE_EQ(*known.stats(2, kIdle).flops_utilization, 0.25);
}

TEST(StatsWindow, ExpertImbalanceWeighsLayersAndStepsByTheirTokens) {
  StatsWindow window({}, 0);
  EXPECT_FALSE(window.stats(1, kIdle).expert_imbalance);
  StepRecord step = step_at(1);
  step.expert_max = 30;
  step.expert_mean = 10;
  window.add_step(step);
  step.time = 2;
  step.expert_max = 110;
  step.expert_mean = 90;
  window.add_step(step);
  EXPECT_DOUBLE_EQ(*window.stats(2, kIdle).expert_imbalance, 1.4);
}

TEST(StatsWindow, DraftsAreCountedByPosition) {
  StatsWindow window({}, 0);
  StepRecord step = step_at(1);
  step.drafts = {
      .verified = {4, 4, 2},
      .accepted = {3, 1, 0},
      .expected = {3.5, 1.25, 0.25},
      .num_sequences = 4,
      .num_tokens = 8};
  window.add_step(step);
  step.time = 2;
  step.drafts = {
      .verified = {2}, .accepted = {2}, .expected = {1.6}, .num_sequences = 4, .num_tokens = 6};
  window.add_step(step);
  const Stats stats = window.stats(2, kIdle);
  EXPECT_EQ(stats.drafts_verified, 12);
  EXPECT_EQ(stats.drafts_accepted, 6);
  EXPECT_DOUBLE_EQ(*stats.draft_acceptance, 0.5);
  ASSERT_EQ(stats.draft_acceptance_by_position.size(), 3u);
  EXPECT_DOUBLE_EQ(stats.draft_acceptance_by_position[0], 5.0 / 6);
  EXPECT_DOUBLE_EQ(stats.draft_acceptance_by_position[1], 0.25);
  EXPECT_DOUBLE_EQ(stats.draft_acceptance_by_position[2], 0);
  EXPECT_DOUBLE_EQ(*stats.drafts_per_sequence, 1.5);
  EXPECT_DOUBLE_EQ(*stats.draft_confidence_error, (0.1 + 0.25 + 0.25) / 12);
  EXPECT_DOUBLE_EQ(*stats.tokens_per_sequence_step, 1.75);
  const Stats none = StatsWindow({}, 0).stats(2, kIdle);
  EXPECT_FALSE(none.draft_acceptance);
  EXPECT_TRUE(none.draft_acceptance_by_position.empty());
}

TEST(StatsWindow, ADraftRecordCountsUpToTheFirstRejectedDraft) {
  DraftRecord record;
  record.add(std::vector<double>{0.9, 0.5}, 1, 2);
  record.add({}, 0, 1);
  record.add(std::vector<double>{0.8}, 1, 2);
  EXPECT_EQ(record.verified, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(record.accepted, (std::vector<int64_t>{2, 0}));
  EXPECT_DOUBLE_EQ(record.expected[0], 1.7);
  EXPECT_EQ(record.num_sequences, 3);
  EXPECT_EQ(record.num_tokens, 5);
}

TEST(StatsWindow, NegativeLimitsAreRefused) {
  EXPECT_THROW(StatsWindow({.window_seconds = -1}, 0), Error);
  EXPECT_THROW(StatsWindow({.window_steps = -1}, 0), Error);
  EXPECT_THROW(StatsWindow({.peak_flops = -1}, 0), Error);
}

}  // namespace
}  // namespace di::engine
