// Ways to choose drafts, where what they must come to can be told without running them.
#include "bench/draft_choices.h"

#include <stdexcept>

#include <gtest/gtest.h>

namespace di::bench {
namespace {

constexpr AcceptanceLaw kLaw{.mean = 0.75, .concentration = 4, .steps = 500, .seed = 7};

const ChoiceResult& named(const std::vector<ChoiceResult>& results, const std::string& policy) {
  for (const ChoiceResult& result : results) {
    if (result.policy == policy) return result;
  }
  throw std::runtime_error("no policy " + policy);
}

TEST(DraftChoices, CountStaticDrafts) {
  const auto results = evaluate_choices(
      8, {.rows = {0.010, 0.011, 0.012, 0.013, 0.014, 0.015}, .drafting = 0.001}, kLaw
  );
  ASSERT_EQ(results.size(), 8u);
  const ChoiceResult& off = named(results, "off");
  EXPECT_DOUBLE_EQ(off.tokens, 1);
  EXPECT_DOUBLE_EQ(off.verified, 0);
  EXPECT_NEAR(off.seconds, 0.010, 1e-12);
  EXPECT_NEAR(off.tokens_per_second(8), 800, 1e-9);
  const ChoiceResult& two = named(results, "static 2");
  EXPECT_DOUBLE_EQ(two.verified, 2);
  EXPECT_NEAR(two.tokens, 1 + 0.75 + 0.75 * 0.75, 0.03);
  EXPECT_NEAR(two.seconds, 0.013, 1e-12);
}

TEST(DraftChoices, VerifyAllWhereRowsAreFree) {
  const auto results =
      evaluate_choices(4, {.rows = std::vector<double>(6, 0.01), .drafting = 0}, kLaw);
  const double all = named(results, "static 5").tokens_per_second(4);
  for (const char* policy : {"early stop", "budget"}) {
    EXPECT_DOUBLE_EQ(named(results, policy).verified, 5) << policy;
    EXPECT_DOUBLE_EQ(named(results, policy).tokens_per_second(4), all) << policy;
  }
}

TEST(DraftChoices, GainWhereRowsCost) {
  const auto results = evaluate_choices(
      64, {.rows = {0.010, 0.014, 0.018, 0.022, 0.026, 0.030}, .drafting = 0.001}, kLaw
  );
  for (const char* policy : {"early stop", "budget"}) {
    const ChoiceResult& chosen = named(results, policy);
    EXPECT_LT(chosen.verified, 4) << policy;
    for (int64_t k = 1; k <= 5; ++k) {
      const std::string fixed = "static " + std::to_string(k);
      EXPECT_GT(chosen.tokens_per_second(64), named(results, fixed).tokens_per_second(64))
          << policy << ", " << fixed;
    }
  }
}

TEST(DraftChoices, ScaleLayersAlongALine) {
  const ChoiceCosts costs =
      costs_of_layers({.rows = {5, 7}, .drafting = 1}, 3, {.rows = {8, 13}, .drafting = 2}, 6, 40);
  EXPECT_EQ(costs.rows, (std::vector<double>{42, 81}));
  EXPECT_DOUBLE_EQ(costs.drafting, 1.5);
}

}  // namespace
}  // namespace di::bench
