// The rule that chooses how many drafts to verify and the rule that verifies them, together: two
// sequences share a step, and each text keeps its law, whatever the other one does.
#include <functional>
#include <utility>

#include <gtest/gtest.h>

#include "sampling/verification_testing.h"
#include "sched/draft_budget.h"

namespace di::engine {
namespace {

using namespace sampling::testing;  // NOLINT(google-build-using-namespace)

constexpr int32_t kVocab = 2;
constexpr std::size_t kMost = 2;  // drafts of a sequence

using Choose = std::function<std::vector<int64_t>(std::span<const sched::Survivals>)>;

/// A sequence with its target and drafter. Confidences depend on the drafts before, as the model's
/// do.
struct Party {
  explicit Party(unsigned seed)
      : target(seed, kVocab, 1.0), drafter(seed + 50, kVocab, 1.0), confidence(seed + 90, 2, 2.0) {}

  /// What the step knows of `drafts`.
  sched::Survivals survivals(const Tokens& drafts) {
    sched::Survivals all;
    Tokens before;
    double survival = 1;
    for (const int32_t draft : drafts) {
      all.push_back(survival *= confidence.behind(before)[0]);
      before.push_back(draft);
    }
    return all;
  }

  RandomModel target, drafter, confidence;
};

/// All drafts of a party with their probabilities.
std::vector<std::pair<Tokens, double>> all_drafts(Party& party) {
  std::vector<std::pair<Tokens, double>> drafts = {{{}, 1.0}};
  for (std::size_t i = 0; i < kMost; ++i) {
    std::vector<std::pair<Tokens, double>> longer;
    for (const auto& [tokens, share] : drafts) {
      for (int32_t token = 0; token < kVocab; ++token) {
        Tokens more = tokens;
        more.push_back(token);
        const double chance = party.drafter.behind(tokens)[static_cast<std::size_t>(token)];
        longer.emplace_back(std::move(more), share * chance);
      }
    }
    drafts = std::move(longer);
  }
  return drafts;
}

/// The law of both texts behind one step.
TextLaw joint_law(Party& a, Party& b, const Choose& choose) {
  TextLaw joint;
  for (const auto& [drafts_a, share_a] : all_drafts(a)) {
    for (const auto& [drafts_b, share_b] : all_drafts(b)) {
      const std::vector<sched::Survivals> known = {a.survivals(drafts_a), b.survivals(drafts_b)};
      const std::vector<int64_t> verified = choose(known);
      TextLaw of_a, of_b;
      const auto count = [&](int i) { return static_cast<std::size_t>(verified[i]); };
      add_outcomes(a.target, a.drafter, drafts_a, count(0), kMost + 1, share_a, false, of_a);
      add_outcomes(b.target, b.drafter, drafts_b, count(1), kMost + 1, share_b, false, of_b);
      for (const auto& [text_a, mass_a] : of_a) {
        for (const auto& [text_b, mass_b] : of_b) {
          Tokens both = text_a;
          both.insert(both.end(), text_b.begin(), text_b.end());
          joint[both] += mass_a * mass_b;
        }
      }
    }
  }
  return joint;
}

/// The law of both texts when nobody drafts.
TextLaw free_law(Party& a, Party& b) {
  TextLaw joint;
  for (const auto& [text_a, mass_a] : target_law(a.target, kMost + 1)) {
    for (const auto& [text_b, mass_b] : target_law(b.target, kMost + 1)) {
      Tokens both = text_a;
      both.insert(both.end(), text_b.begin(), text_b.end());
      joint[both] += mass_a * mass_b;
    }
  }
  return joint;
}

/// How far texts lie from their law at worst, over many pairs of parties.
double worst_distance(const Choose& choose) {
  double worst = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    Party a(2 * seed), b(2 * seed + 1);
    worst = std::max(worst, distance(joint_law(a, b, choose), free_law(a, b)));
  }
  return worst;
}

const std::vector<sched::RowCosts::Point> kPlateaus = {{2, 1.0}, {3, 1.5}, {5, 1.5}, {6, 1.6}};
constexpr sched::StepLoad kLoad{.rows = 2, .fixed_seconds = 0.1};

TEST(DraftLaw, EarlyStopKeepsTheLawOfBothTexts) {
  const std::vector<sched::RowCosts::Point> slope = {{2, 1.0}, {6, 2.2}};
  for (const auto& points : {slope, kPlateaus}) {
    const sched::RowCosts costs(points);
    EXPECT_LT(
        worst_distance([&](std::span<const sched::Survivals> known) {
          return sched::drafts_by_early_stop(known, costs, kLoad);
        }),
        kExact
    );
  }
}

TEST(DraftLaw, AnyBudgetOfAnEarlierStepKeepsTheLawOfBothTexts) {
  for (int64_t budget = 0; budget <= 4; ++budget) {
    EXPECT_LT(
        worst_distance([&](std::span<const sched::Survivals> known) {
          return sched::deal_drafts(known, budget);
        }),
        kExact
    );
  }
}

TEST(DraftLaw, ABudgetOfTheSameStepChangesIt) {
  const sched::RowCosts costs(kPlateaus);
  EXPECT_GT(
      worst_distance([&](std::span<const sched::Survivals> known) {
        return sched::deal_drafts(known, sched::draft_budget(known, costs, kLoad));
      }),
      1e-3
  );
}

}  // namespace
}  // namespace di::engine
