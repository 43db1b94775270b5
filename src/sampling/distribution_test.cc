#include "sampling/distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace di::sampling {
namespace {

/// The kept tokens in rank order with their running sums: a full sort, libm's exp, and doubles.
struct Sorted {
  std::vector<Ranked> tokens;
  std::vector<double> terms;
  std::vector<double> sums;

  Sorted(const std::vector<double>& logits, const SamplingParams& params) {
    for (std::size_t i = 0; i < logits.size(); ++i)
      tokens.push_back({logits[i], static_cast<int32_t>(i)});
    std::sort(tokens.begin(), tokens.end(), ranks_before);
    if (params.top_k > 0) {
      tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(params.top_k)));
    }
    const double best = tokens[0].logit;
    double sum = 0;
    for (const Ranked& token : tokens) {
      terms.push_back(std::exp((token.logit - best) / params.temperature));
      sum += terms.back();
      sums.push_back(sum);
    }
    const auto nucleus = std::lower_bound(sums.begin(), sums.end(), params.top_p * sum);
    if (params.top_p < 1) sums.erase(nucleus + 1, sums.end());
    while (sums.size() > 1 && terms[sums.size() - 1] < params.min_p)
      sums.pop_back();
    tokens.resize(sums.size());
  }

  int32_t token_at(double share) const {
    const auto at = std::upper_bound(sums.begin(), sums.end(), share * sums.back());
    return tokens[static_cast<std::size_t>(at - sums.begin())].token;
  }

  double logprob(int32_t token) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].token != token) continue;
      return std::max(std::log(terms[i]) - std::log(sums.back()), kLogprobFloor);
    }
    return kLogprobFloor;
  }
};

Distribution distribution_of(const std::vector<double>& logits, const SamplingParams& params) {
  return {logits, row_kernels().peak_of_doubles(logits.data(), logits.size()), params};
}

/// Rows of any size and spread, many with equal logits and some with forbidden tokens.
std::vector<double> random_logits(std::mt19937_64& random) {
  const std::size_t size = 1 + random() % (random() % 8 == 0 ? 20000 : 300);
  const double spread = std::exp(std::uniform_real_distribution<double>(-4, 3)(random));
  const double grain = random() % 2 == 0 ? spread / 4 : 1e-9;
  std::normal_distribution<double> normal(0, spread);
  std::vector<double> logits(size);
  for (double& logit : logits) {
    logit = std::round(normal(random) / grain) * grain;
    if (random() % 20 == 0) logit = -std::numeric_limits<double>::infinity();
  }
  logits[random() % size] = spread;
  return logits;
}

SamplingParams random_cuts(std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(0, 1);
  SamplingParams params;
  params.temperature = std::exp(4 * uniform(random) - 2);
  if (random() % 2 == 0) params.top_k = 1 + static_cast<int64_t>(random() % 400);
  if (random() % 2 == 0) params.top_p = 1 - uniform(random) * uniform(random);
  if (random() % 3 == 0) params.min_p = uniform(random) * uniform(random) * uniform(random);
  return params;
}

TEST(Distribution, DrawsWhatAFullSortDraws) {
  std::mt19937_64 random(20);
  for (int i = 0; i < 4000; ++i) {
    const std::vector<double> logits = random_logits(random);
    const SamplingParams params = random_cuts(random);
    const Sorted expected(logits, params);
    Distribution distribution = distribution_of(logits, params);
    for (int draw = 0; draw < 5; ++draw) {
      const double share = std::uniform_real_distribution<double>(0, 1)(random);
      ASSERT_EQ(distribution.token_at(share), expected.token_at(share))
          << "case " << i << ": " << logits.size() << " tokens, temperature " << params.temperature
          << ", top_k " << params.top_k << ", top_p " << params.top_p << ", min_p " << params.min_p
          << ", share " << share;
    }
  }
}

TEST(Distribution, ReportsTheLogprobsOfWhatIsDrawnFrom) {
  std::mt19937_64 random(21);
  for (int i = 0; i < 300; ++i) {
    const std::vector<double> logits = random_logits(random);
    const SamplingParams params = random_cuts(random);
    const Sorted expected(logits, params);
    Distribution distribution = distribution_of(logits, params);
    for (int asked = 0; asked < 20; ++asked) {
      const auto token = static_cast<int32_t>(random() % logits.size());
      const double logprob = expected.logprob(token);
      const double found = distribution.logprob(token);
      if (std::max(found, logprob) < -30) continue;  // without mass, on either side of a cut
      ASSERT_NEAR(found, logprob, 1e-9) << "case " << i;
    }
  }
}

TEST(Distribution, HasEveryMassInItsSharesAndNoOther) {
  const std::vector<double> logits = {std::log(1), std::log(4), std::log(2), std::log(1)};
  Distribution distribution = distribution_of(logits, {});
  EXPECT_EQ(distribution.token_at(0), 1);
  EXPECT_EQ(distribution.token_at(0.4999), 1);
  EXPECT_EQ(distribution.token_at(0.5001), 2);
  EXPECT_EQ(distribution.token_at(0.7501), 0);
  EXPECT_EQ(distribution.token_at(0.8751), 3);
  EXPECT_EQ(distribution.token_at(1 - 0x1p-53), 3);
}

TEST(Distribution, CutsInTheOrderTopKThenTopPThenMinP) {
  const std::vector<double> logits = {std::log(4), std::log(3), std::log(2), std::log(1)};
  const double last = 1 - 0x1p-53;
  EXPECT_EQ(distribution_of(logits, {.top_p = 0.6}).token_at(last), 1);
  // Of the three best, which hold 9 of 10, the best one alone has less than half.
  EXPECT_EQ(distribution_of(logits, {.top_p = 0.42, .top_k = 3}).token_at(last), 0);
  EXPECT_EQ(distribution_of(logits, {.top_p = 0.42}).token_at(last), 1);
  EXPECT_EQ(distribution_of(logits, {.top_k = 3, .min_p = 0.4}).token_at(last), 2);
  EXPECT_EQ(distribution_of(logits, {.top_k = 3, .min_p = 0.6}).token_at(last), 1);
  EXPECT_EQ(distribution_of(logits, {.min_p = 1}).token_at(last), 0);
}

TEST(Distribution, BreaksTiesAtACutByTheLowerId) {
  const std::vector<double> logits(1000, 2.5);
  for (int64_t k = 1; k < 1000; k += 37) {
    Distribution distribution = distribution_of(logits, {.top_k = k});
    EXPECT_EQ(distribution.token_at(1 - 0x1p-53), k - 1);
    EXPECT_EQ(distribution.token_at(0), 0);
    EXPECT_EQ(distribution.logprob(static_cast<int32_t>(k)), kLogprobFloor);
    EXPECT_NEAR(
        distribution.logprob(static_cast<int32_t>(k) - 1), -std::log(static_cast<double>(k)), 1e-12
    );
  }
}

TEST(Distribution, TakesTheBestTokenWhenTheTemperatureIsNextToNothing) {
  const std::vector<double> logits = {1, 3, 2.9999, 3};
  for (const double temperature : {0.0, 5e-324, 1e-300, 1e-10}) {
    Distribution distribution = distribution_of(logits, {.temperature = temperature});
    EXPECT_EQ(distribution.token_at(0), 1);
    EXPECT_EQ(distribution.logprob(0), kLogprobFloor);
  }
}

TEST(Distribution, IsFlatWhenTheTemperatureIsBeyondMeasure) {
  const std::vector<double> logits = {1, -300, 2.9999, 3};
  Distribution distribution =
      distribution_of(logits, {.temperature = std::numeric_limits<double>::max()});
  for (int32_t token = 0; token < 4; ++token)
    EXPECT_NEAR(distribution.logprob(token), std::log(0.25), 1e-12);
}

}  // namespace
}  // namespace di::sampling
