// Choices of drafts: against trying everything, and that they never look ahead.
#include "sched/draft_budget.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include <gtest/gtest.h>

namespace di::sched {
namespace {

using Choice = std::vector<int64_t>;

std::vector<Survivals> random_sequences(std::mt19937& random, std::size_t count, int most) {
  std::uniform_real_distribution<double> share(0.05, 1);
  std::vector<Survivals> sequences(count);
  for (Survivals& sequence : sequences) {
    double survival = 1;
    for (int j = static_cast<int>(random() % static_cast<unsigned>(most + 1)); j > 0; --j)
      sequence.push_back(survival *= random() % 5 == 0 ? 1 : share(random));
  }
  return sequences;
}

/// Costs that rise by steps and slopes.
RowCosts random_costs(std::mt19937& random) {
  std::vector<RowCosts::Point> points = {{1, 1.0}};
  for (int64_t rows = 2; rows < 40; rows += 1 + static_cast<int64_t>(random() % 6)) {
    const double rise = random() % 3 == 0 ? 0 : static_cast<double>(random() % 100) / 150;
    points.push_back({rows, points.back().seconds + rise});
  }
  return RowCosts(points);
}

StepLoad load_of(const std::vector<Survivals>& sequences) {
  return {.rows = std::ssize(sequences) + 3, .fixed_seconds = 0.2};
}

double rate_of(
    const std::vector<Survivals>& sequences, const Choice& choice, const RowCosts& costs
) {
  int64_t rows = load_of(sequences).rows;
  for (const int64_t count : choice)
    rows += count;
  return expected_tokens(sequences, choice) / (0.2 + costs.seconds(rows));
}

/// The best rate of all choices.
double best_rate(const std::vector<Survivals>& sequences, const RowCosts& costs) {
  double best = 0;
  Choice choice(sequences.size(), 0);
  const std::function<void(std::size_t)> choose = [&](std::size_t s) {
    if (s == sequences.size()) {
      best = std::max(best, rate_of(sequences, choice, costs));
      return;
    }
    for (choice[s] = 0; choice[s] <= std::ssize(sequences[s]); ++choice[s])
      choose(s + 1);
    choice[s] = 0;
  };
  choose(0);
  return best;
}

TEST(Survivals, AreProductsOfCalibratedConfidences) {
  const std::vector<float> confidence = {0, 2, -1000};
  const std::vector<double> plain = survivals(confidence, {});
  EXPECT_DOUBLE_EQ(plain[0], 0.5);
  EXPECT_DOUBLE_EQ(plain[1], 0.5 / (1 + std::exp(-2.0)));
  EXPECT_GT(plain[2], 0);
  const std::vector<double> temperatures = {1, 4, 1};
  EXPECT_DOUBLE_EQ(survivals(confidence, temperatures)[1], 0.5 / (1 + std::exp(-0.5)));
}

TEST(RowCosts, JoinMeasurementsAndNeverFall) {
  const std::vector<RowCosts::Point> points = {{2, 1.0}, {4, 0.9}, {8, 2.0}};
  const RowCosts costs(points);
  EXPECT_DOUBLE_EQ(costs.seconds(1), 1);
  EXPECT_DOUBLE_EQ(costs.seconds(3), 1);
  EXPECT_DOUBLE_EQ(costs.seconds(6), 1.5);
  EXPECT_DOUBLE_EQ(costs.seconds(8), 2);
  EXPECT_DOUBLE_EQ(costs.seconds(10), 2.5);
  EXPECT_DOUBLE_EQ(RowCosts(std::span(points).first(1)).seconds(100), 1);
}

TEST(DraftBudget, IsTheBestOfAllChoices) {
  std::mt19937 random(1);
  for (int run = 0; run < 300; ++run) {
    const auto sequences = random_sequences(random, 1 + random() % 3, 4);
    const RowCosts costs = random_costs(random);
    const int64_t budget = draft_budget(sequences, costs, load_of(sequences));
    const Choice choice = deal_drafts(sequences, budget);
    EXPECT_NEAR(rate_of(sequences, choice, costs), best_rate(sequences, costs), 1e-12);
  }
}

TEST(EarlyStop, IsTheBestOfAllChoicesWhereEachRowCostsTheSame) {
  std::mt19937 random(2);
  for (int run = 0; run < 300; ++run) {
    const auto sequences = random_sequences(random, 1 + random() % 3, 4);
    const double slope = static_cast<double>(random() % 100) / 200;
    const std::vector<RowCosts::Point> points = {{1, 1.0}, {2, 1.0 + slope}};
    const RowCosts costs(points);
    const Choice choice = drafts_by_early_stop(sequences, costs, load_of(sequences));
    EXPECT_NEAR(rate_of(sequences, choice, costs), best_rate(sequences, costs), 1e-12);
  }
}

TEST(DraftBudget, VerifiesAllWhereRowsAreFreeAndNothingWhereTheyAreDear) {
  const std::vector<Survivals> sequences = {{0.9, 0.1}, {0.5}};
  const std::vector<RowCosts::Point> free = {{1, 1.0}}, dear = {{1, 1.0}, {2, 2.0}};
  const StepLoad load{.rows = 2};
  EXPECT_EQ(drafts_by_early_stop(sequences, RowCosts(free), load), (Choice{2, 1}));
  EXPECT_EQ(draft_budget(sequences, RowCosts(free), load), 3);
  EXPECT_EQ(drafts_by_early_stop(sequences, RowCosts(dear), load), (Choice{0, 0}));
  EXPECT_EQ(draft_budget(sequences, RowCosts(dear), load), 0);
}

/// Whether some change of the survivals from draft j of a sequence on changes whether draft
/// j − 1 of it is verified: those behind the one in question.
bool looks_ahead(
    std::mt19937& random, const std::function<Choice(std::span<const Survivals>)>& choose
) {
  for (int run = 0; run < 2000; ++run) {
    auto sequences = random_sequences(random, 1 + random() % 3, 4);
    Survivals& changed = sequences[random() % sequences.size()];
    if (changed.size() < 2) continue;
    const std::size_t s = static_cast<std::size_t>(&changed - sequences.data());
    const std::size_t j = 1 + random() % (changed.size() - 1);
    const bool before = choose(sequences)[s] >= static_cast<int64_t>(j);
    const double factor = static_cast<double>(random() % 1000) / 1000;
    for (std::size_t i = j; i < changed.size(); ++i)
      changed[i] = changed[j - 1] * std::pow(factor, static_cast<double>(i - j + 1));
    const bool after = choose(sequences)[s] >= static_cast<int64_t>(j);
    if (before != after) return true;
  }
  return false;
}

TEST(DraftBudget, NoChoiceLooksAhead) {
  std::mt19937 random(3);
  for (int run = 0; run < 5; ++run) {
    const RowCosts costs = random_costs(random);
    const StepLoad load{.rows = 4, .fixed_seconds = 0.2};
    EXPECT_FALSE(looks_ahead(random, [&](std::span<const Survivals> sequences) {
      return drafts_by_early_stop(sequences, costs, load);
    }));
    const auto budget = static_cast<int64_t>(random() % 8);
    EXPECT_FALSE(looks_ahead(random, [&](std::span<const Survivals> sequences) {
      return deal_drafts(sequences, budget);
    }));
  }
}

// What a budget from the survivals that it decides on would do, where costs have plateaus.
TEST(DraftBudget, OfTheSameStepWouldLookAhead) {
  std::mt19937 random(4);
  const std::vector<RowCosts::Point> points = {{4, 1.0}, {5, 1.4}, {6, 1.4}, {8, 1.4}, {9, 3.0}};
  const RowCosts costs(points);
  EXPECT_TRUE(looks_ahead(random, [&](std::span<const Survivals> sequences) {
    const StepLoad load{.rows = 4};
    return deal_drafts(sequences, draft_budget(sequences, costs, load));
  }));
}

}  // namespace
}  // namespace di::sched
