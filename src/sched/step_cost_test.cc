// The learnt cost of a step.
#include "sched/step_cost.h"

#include <random>

#include <gtest/gtest.h>

namespace di::sched {
namespace {

double seconds_of(int64_t decode_rows, int64_t prefill_rows) {
  return 0.004 + 0.0003 * static_cast<double>(decode_rows) +
         0.00002 * static_cast<double>(prefill_rows);
}

StepCost learnt(int steps, double noise) {
  StepCost cost;
  std::mt19937 random(3);
  for (int i = 0; i < steps; ++i) {
    const auto decode = static_cast<int64_t>(random() % 64);
    const auto prefill = static_cast<int64_t>(random() % 3 == 0 ? random() % 2048 : 0);
    const double factor = 1 + noise * (static_cast<double>(random() % 2001) / 1000 - 1);
    cost.observe(decode, prefill, seconds_of(decode, prefill) * factor);
  }
  return cost;
}

TEST(StepCost, KnowsNothingAtFirstAndAllowsTheLeast) {
  const StepCost cost;
  EXPECT_EQ(cost.expected(10, 10), 0);
  EXPECT_EQ(cost.prefill_rows_within(0.05, 10, 16), 16);
  EXPECT_EQ(cost.in_prefill_rows(1), 0);
}

TEST(StepCost, FindsTheLineOfExactMeasurements) {
  const StepCost cost = learnt(100, 0);
  EXPECT_NEAR(cost.expected(20, 1000), seconds_of(20, 1000), 1e-5);
  EXPECT_NEAR(cost.expected(1, 0), seconds_of(1, 0), 1e-5);
  EXPECT_NEAR(static_cast<double>(cost.prefill_rows_within(0.03, 20, 16)), 1000, 10);
  EXPECT_NEAR(cost.in_prefill_rows(0.02), 1000, 10);
}

TEST(StepCost, ComesNearUnderNoise) {
  const StepCost cost = learnt(1000, 0.2);
  EXPECT_NEAR(cost.expected(20, 1000), seconds_of(20, 1000), 0.003);
}

TEST(StepCost, IsNotThrownOffByOneSlowStep) {
  StepCost cost = learnt(200, 0);
  cost.observe(20, 0, 30.0);
  EXPECT_LT(cost.expected(20, 0), 1.5 * seconds_of(20, 0));
}

TEST(StepCost, FollowsADeviceThatSlowsDown) {
  StepCost cost = learnt(200, 0);
  std::mt19937 random(4);
  for (int i = 0; i < 600; ++i) {
    const auto decode = static_cast<int64_t>(random() % 64);
    const auto prefill = static_cast<int64_t>(random() % 512);
    cost.observe(decode, prefill, 3 * seconds_of(decode, prefill));
  }
  EXPECT_NEAR(cost.expected(20, 200), 3 * seconds_of(20, 200), 0.002);
}

TEST(StepCost, TrustsTheLineOnlyUpToTwiceWhatItSaw) {
  StepCost cost;
  for (int i = 0; i < 50; ++i)
    cost.observe(10, i % 2 == 0 ? 16 : 8, seconds_of(10, i % 2 == 0 ? 16 : 8));
  EXPECT_EQ(cost.prefill_rows_within(1.0, 10, 16), 32);
}

TEST(StepCost, AllowsTheLeastWhenDecodeRowsAloneTakeLonger) {
  EXPECT_EQ(learnt(100, 0).prefill_rows_within(0.001, 60, 16), 16);
}

TEST(StepCost, IgnoresStepsWithoutATime) {
  StepCost cost;
  cost.observe(1, 1, 0);
  cost.observe(1, 1, -1);
  EXPECT_EQ(cost.expected(1, 1), 0);
}

}  // namespace
}  // namespace di::sched
