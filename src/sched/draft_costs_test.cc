// What is learnt of costs: near the truth when there is one to learn, and never nonsense.
#include "sched/draft_costs.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace di::sched {
namespace {

/// Multiplies by noise, and now and then by ten.
class Noise {
 public:
  explicit Noise(double spread) : spread_(spread) {}
  double operator()(double seconds) {
    const double factor = 1 + spread_ * std::clamp(normal_(random_), -3.0, 3.0);
    return seconds * factor * (random_() % 400 == 0 ? 10 : 1);
  }
  int64_t below(int64_t end) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(end));
  }

 private:
  std::mt19937 random_{11};
  std::normal_distribution<double> normal_;
  double spread_;
};

double backbone(int64_t rows) {
  return 0.010 + 0.0004 * static_cast<double>(rows);
}

void expect_sane(const DraftCosts& costs) {
  EXPECT_TRUE(costs.table().is_sound());
  const auto now = costs.costs_for({.rows = 3, .drafts = 200, .keys_per_row = 1e4});
  double before = 0, slope = -1;
  for (int64_t rows = 3; rows <= 203; ++rows) {
    const double measured = now->measured.seconds(rows), convex = now->rows.seconds(rows);
    ASSERT_TRUE(std::isfinite(measured) && convex > 0);
    ASSERT_GE(measured, before);
    ASSERT_LE(convex, measured * (1 + 1e-9));
    if (rows > 3) {
      const double next = convex - now->rows.seconds(rows - 1);
      ASSERT_GE(next, slope - 1e-9 * convex);
      slope = next;
    }
    before = measured;
  }
  ASSERT_TRUE(std::isfinite(now->drafting(7)) && now->drafting(7) >= 0);
  ASSERT_TRUE(std::isfinite(costs.relative_error()));
}

TEST(DraftCosts, KnowsNothingAtFirst) {
  const DraftCosts costs;
  EXPECT_TRUE(costs.is_empty());
  EXPECT_EQ(costs.expected({.rows = 4}), 0);
  expect_sane(costs);
  const auto now = costs.costs_for({.rows = 1, .drafts = 5});
  EXPECT_EQ(now->rows.seconds(1), now->rows.seconds(6));
}

TEST(DraftCosts, IsFlatAfterOnePoint) {
  DraftCosts costs;
  costs.observe({.rows = 4}, {0.02});
  const auto now = costs.costs_for({.rows = 1, .drafts = 30});
  for (const int64_t rows : {1, 4, 31})
    EXPECT_DOUBLE_EQ(now->rows.seconds(rows), 0.02);
  expect_sane(costs);
}

TEST(DraftCosts, ComesNearACurveUnderNoise) {
  DraftCosts costs;
  Noise noise(0.1);
  for (int i = 0; i < 4000; ++i) {
    const int64_t rows = 1 + noise.below(64);
    costs.observe({.rows = rows}, {noise(backbone(rows))});
  }
  const auto now = costs.costs_for({.rows = 1, .drafts = 63});
  for (int64_t rows = 1; rows <= 64; ++rows)
    EXPECT_NEAR(now->measured.seconds(rows), backbone(rows), 0.1 * backbone(rows)) << rows;
  EXPECT_LT(costs.relative_error(), 0.15);
  expect_sane(costs);
}

TEST(DraftCosts, FindsAStair) {
  DraftCosts costs;
  Noise noise(0.02);
  for (int i = 0; i < 2000; ++i) {
    const int64_t rows = 1 + noise.below(16);
    costs.observe({.rows = rows}, {noise(rows <= 8 ? 0.01 : 0.02)});
  }
  const auto now = costs.costs_for({.rows = 1, .drafts = 15});
  EXPECT_NEAR(now->measured.seconds(8), 0.01, 0.0006);
  EXPECT_NEAR(now->measured.seconds(10), 0.02, 0.0012);
  // The early stop sees the slope of the whole stair.
  EXPECT_LT(now->rows.seconds(9) - now->rows.seconds(8), 0.003);
}

TEST(DraftCosts, TakesFallingCostsForNoise) {
  DraftCosts costs;
  for (int64_t rows = 1; rows <= 8; ++rows)
    costs.observe({.rows = rows}, {0.02 - 0.001 * static_cast<double>(rows)});
  expect_sane(costs);
}

TEST(DraftCosts, LearnsWhatContextCosts) {
  DraftCosts costs;
  Noise noise(0.05);
  const double pair = 2e-7;
  for (int i = 0; i < 4000; ++i) {
    const int64_t rows = 1 + noise.below(8);
    const int64_t pairs = rows * (1000 + noise.below(20000));
    costs.observe(
        {.rows = rows, .key_pairs = pairs},
        {noise(backbone(rows) + pair * static_cast<double>(pairs))}
    );
  }
  const auto now = costs.costs_for({.rows = 4, .drafts = 4, .keys_per_row = 40000});
  EXPECT_NEAR(
      now->measured.seconds(4), backbone(4) + pair * 160000, 0.15 * now->measured.seconds(4)
  );
  expect_sane(costs);
}

// A device that waits more than it computes: longer texts make every step longer, by a like share.
// Steps of six rows were seen on short texts only, and are not forgotten.
TEST(DraftCosts, KnowsOnLongTextsWhatWasSeenOnShortOnes) {
  DraftCosts costs;
  Noise noise(0.02);
  const auto truth = [](int64_t rows, int64_t keys) {
    return backbone(rows) * (1 + 0.002 * static_cast<double>(keys));
  };
  const auto observe = [&](int64_t rows, int64_t keys) {
    costs.observe({.rows = rows, .key_pairs = rows * keys}, {noise(truth(rows, keys))});
  };
  for (int i = 0; i < 300; ++i)
    observe(1 + i % 6, 20 + noise.below(20));
  for (int i = 0; i < 600; ++i)
    observe(i % 64 == 0 ? 1 : 3 + i % 2, 40 + noise.below(100));
  for (const int64_t keys : {40, 140}) {
    for (const int64_t rows : {1, 3, 6}) {
      const double expected = costs.expected({.rows = rows, .key_pairs = rows * keys});
      EXPECT_NEAR(expected, truth(rows, keys), 0.03 * truth(rows, keys)) << rows << ", " << keys;
    }
  }
}

TEST(DraftCosts, LearnsWhatExpertsCost) {
  DraftCosts costs;
  Noise noise(0.05);
  for (int i = 0; i < 4000; ++i) {
    const double experts = 20 + static_cast<double>(noise.below(20));
    costs.observe({.rows = 6, .experts = experts}, {noise(0.002 + 0.0005 * experts)});
  }
  EXPECT_NEAR(costs.expected({.rows = 6, .experts = 40}), 0.022, 0.0025);
  EXPECT_NEAR(costs.expected({.rows = 6, .experts = 20}), 0.012, 0.0025);
}

TEST(DraftCosts, LearnsDraftingWhenTold) {
  DraftCosts costs;
  Noise noise(0.05);
  for (int i = 0; i < 500; ++i) {
    const int64_t n = 1 + noise.below(16);
    const double drafting = noise(0.001 + 0.0002 * static_cast<double>(n));
    costs.observe({.rows = n, .drafting = n}, {noise(backbone(n)) + drafting, drafting});
  }
  const auto now = costs.costs_for({.rows = 1});
  EXPECT_NEAR(now->drafting(8), 0.0026, 0.0008);
  EXPECT_EQ(now->drafting(0), 0);
  EXPECT_EQ(now->load(5, 8).rows, 5);
  EXPECT_EQ(now->load(5, 8).fixed_seconds, now->drafting(8));
}

TEST(DraftCosts, FindsDraftingFromStepsWithout) {
  DraftCosts costs;
  Noise noise(0.03);
  for (int i = 0; i < 2000; ++i) {
    const bool drafts = i % 8 != 0;
    costs.observe(
        {.rows = 4, .drafting = drafts ? 4 : 0}, {noise(backbone(4) + (drafts ? 0.004 : 0))}
    );
  }
  EXPECT_NEAR(costs.drafting(4), 0.004, 0.001);
  EXPECT_NEAR(costs.expected({.rows = 4}), backbone(4), 0.1 * backbone(4));
}

TEST(DraftCosts, IsNotThrownOffByOneSlowStep) {
  DraftCosts costs;
  for (int i = 0; i < 50; ++i)
    costs.observe({.rows = 3}, {0.01});
  costs.observe({.rows = 3}, {30.0});
  EXPECT_LT(costs.expected({.rows = 3}), 0.012);
  EXPECT_EQ(costs.plausible({.rows = 500}, 30.0), 30.0);
}

TEST(DraftCosts, FollowsAMachineThatChanges) {
  DraftCosts costs;
  Noise noise(0.05);
  for (int i = 0; i < 2000; ++i)
    costs.observe({.rows = 1 + i % 8}, {noise(backbone(1 + i % 8))});
  for (int i = 0; i < 150; ++i)
    costs.observe({.rows = 1 + i % 2}, {noise(3 * backbone(1 + i % 2))});
  EXPECT_NEAR(costs.expected({.rows = 2}), 3 * backbone(2), 0.4 * backbone(2));
  // What was not seen since is believed to have changed with the rest.
  EXPECT_GT(costs.costs_for({.rows = 1, .drafts = 7})->measured.seconds(8), 2 * backbone(8));
}

TEST(DraftCosts, TriesRowsAgainOfWhichLittleIsKnown) {
  DraftCosts costs;
  for (int i = 0; i < 100; ++i)
    costs.observe({.rows = 1 + i % 3}, {backbone(1 + i % 3)});
  costs.observe({.rows = 6}, {1.0});  // its first step was slow
  EXPECT_LT(costs.costs_for({.rows = 1, .drafts = 5})->measured.seconds(6), 0.02);
}

TEST(DraftCosts, ProfileCountsByMedians) {
  DraftCosts costs;
  const std::vector<StepSeconds> repeats = {
      {0.5, 0.2}, {0.012, 0.002}, {0.011, 0.001}, {0.012, 0.002}, {0.01, 0.002}};
  costs.observe_profile({.rows = 6, .drafting = 1}, repeats);
  EXPECT_NEAR(costs.expected({.rows = 6, .drafting = 1}), 0.012, 1e-4);
  EXPECT_NEAR(costs.drafting(1), 0.002, 1e-4);
  costs.observe_profile({.rows = 6}, {});
}

TEST(DraftCosts, GoesOnFromATable) {
  DraftCosts costs;
  Noise noise(0.05);
  for (int i = 0; i < 2000; ++i) {
    const int64_t rows = 1 + noise.below(40);
    costs.observe(
        {.rows = rows, .key_pairs = rows * 500, .experts = 9, .drafting = 2},
        {noise(backbone(rows)) + 0.002, 0.002}
    );
  }
  const CostTable table = costs.table();
  ASSERT_TRUE(table.is_sound());
  DraftCosts again(table);
  for (const int64_t rows : {1, 5, 17, 40}) {
    const StepShape shape{.rows = rows, .key_pairs = rows * 500, .drafting = 2};
    EXPECT_NEAR(again.expected(shape), costs.expected(shape), 0.03 * costs.expected(shape));
  }
  for (int i = 0; i < 100; ++i)
    again.observe({.rows = 5}, {2 * backbone(5)});
  EXPECT_NEAR(again.expected({.rows = 5}), 2 * backbone(5), 0.1 * backbone(5));
}

TEST(DraftCosts, RefusesTablesThatAreNotSound) {
  const CostTable::Point good{4, 0.01, 8, 100, 5};
  const auto with = [&](CostTable::Point point) { return CostTable{.points = {point}}.is_sound(); };
  EXPECT_TRUE(with(good));
  EXPECT_TRUE(CostTable{}.is_sound());
  for (const double bad : {-1.0, 1e300, std::nan(""), HUGE_VAL}) {
    EXPECT_FALSE(with({4, bad, 8, 100, 5}));
    EXPECT_FALSE(with({4, 0.01, bad, 100, 5}));
    EXPECT_FALSE(with({4, 0.01, 8, bad, 5}));
    EXPECT_FALSE(with({4, 0.01, 8, 100, bad}));
    EXPECT_FALSE((CostTable{.drafting_each = bad}.is_sound()));
    EXPECT_FALSE((CostTable{.rise_per_key = bad}.is_sound()));
  }
  EXPECT_FALSE(with({0, 0.01, 8, 100, 5}));
  EXPECT_FALSE((CostTable{.points = {good, good}}.is_sound()));
}

TEST(DraftCosts, StaysSaneWhateverItIsTold) {
  std::mt19937 random(5);
  const double values[] = {
      0, -1, 1e-9, 1e-4, 0.01, 0.02, 1, 1e3, 1e5, 1e300, std::nan(""), HUGE_VAL};
  const auto value = [&] { return values[random() % std::size(values)]; };
  for (int run = 0; run < 30; ++run) {
    DraftCosts costs;
    for (int i = 0; i < 300; ++i) {
      StepShape shape{.rows = static_cast<int64_t>(random() % 300)};
      if (random() % 20 == 0) shape.rows = (int64_t{1} << (random() % 40)) - 2;
      shape.prefill_rows = random() % 3 == 0 ? shape.rows / 2 : 0;
      shape.key_pairs = static_cast<int64_t>(random() % 4) * static_cast<int64_t>(random());
      shape.experts = value();
      shape.drafting = static_cast<int64_t>(random() % 9);
      costs.observe(shape, {value(), value()});
    }
    expect_sane(costs);
  }
}

}  // namespace
}  // namespace di::sched
