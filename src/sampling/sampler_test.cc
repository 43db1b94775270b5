#include "sampling/sampler.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "sampling/distribution.h"
#include "sampling/philox.h"
#include "sampling/ranking.h"

namespace di::sampling {
namespace {

constexpr int32_t kEos = 0;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Sampler sampler_of(const SamplingParams& params) {
  return {params, kEos, params.seed.value_or(0), {}, {}};
}

/// The first draw.
Draw draw(const std::vector<float>& logits, const SamplingParams& params, int64_t position = 0) {
  std::vector<double> scratch;
  return sampler_of(params).draw(logits, position, scratch);
}

std::vector<float> random_row(std::size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> row(size);
  for (float& logit : row)
    logit = normal(random);
  return row;
}

TEST(Sampler, TakesTheLowestOfEqualBestTokensAtTemperatureZero) {
  EXPECT_EQ(draw({1, 3, 2, 3}, {.temperature = 0}).token, 1);
  EXPECT_EQ(draw({1, 3, 2, 3}, {.temperature = 0, .banned_token_ids = {1}}).token, 3);
}

TEST(Sampler, InvertsTheDistributionAtPhiloxsNumber) {
  const std::vector<float> logits = random_row(5000, 1);
  const std::vector<double> wide(logits.begin(), logits.end());
  const Peak peak = row_kernels().peak_of_doubles(wide.data(), wide.size());
  const SamplingParams params{.temperature = 1.5, .top_p = 0.9, .seed = 42};
  for (int64_t position = 0; position < 200; ++position) {
    const double share = uniform(42, position, Stream::kTarget);
    EXPECT_EQ(
        draw(logits, params, position).token, Distribution(wide, peak, params).token_at(share)
    );
  }
}

/// Σ (count − mean)² / mean of 10⁵ draws against these probabilities.
double chi_square(
    const std::vector<float>& logits,
    const SamplingParams& params,
    const std::vector<double>& probabilities
) {
  constexpr int64_t kDraws = 100000;
  std::vector<int64_t> counts(logits.size(), 0);
  for (int64_t position = 0; position < kDraws; ++position)
    ++counts[static_cast<std::size_t>(draw(logits, params, position).token)];
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double mean = probabilities[i] * kDraws;
    if (mean == 0) {
      EXPECT_EQ(counts[i], 0) << i;
      continue;
    }
    const double off = static_cast<double>(counts[i]) - mean;
    sum += off * off / mean;
  }
  return sum;
}

std::vector<double> normalised(std::vector<double> masses) {
  double sum = 0;
  for (const double mass : masses)
    sum += mass;
  for (double& mass : masses)
    mass /= sum;
  return masses;
}

TEST(Sampler, FollowsTheSoftmaxOverManyPositions) {
  const std::vector<float> logits = {0, 1, 2, -1, 0.5f};
  for (const double temperature : {0.5, 1.0, 3.0}) {
    std::vector<double> masses;
    for (const float logit : logits)
      masses.push_back(std::exp(logit / temperature));
    // 4 degrees of freedom, p = 0.001
    EXPECT_LT(
        chi_square(logits, {.temperature = temperature, .seed = 7}, normalised(masses)), 18.5
    );
  }
}

TEST(Sampler, FollowsEveryCutOverManyPositions) {
  const std::vector<float> logits = {0, 1, 2, -1, 0.5f, 1.5f, 1};
  const auto e = [](double x) { return std::exp(x); };
  // 2 degrees of freedom, p = 0.001
  EXPECT_LT(
      chi_square(logits, {.top_k = 3, .seed = 1}, normalised({0, e(1), e(2), 0, 0, e(1.5), 0})),
      13.9
  );
  EXPECT_LT(
      chi_square(logits, {.top_p = 0.7, .seed = 2}, normalised({0, e(1), e(2), 0, 0, e(1.5), 0})),
      13.9
  );
  EXPECT_LT(
      chi_square(
          logits, {.min_p = 0.36, .seed = 3}, normalised({0, e(1), e(2), 0, 0, e(1.5), e(1)})
      ),
      16.3  // 3 degrees
  );
  EXPECT_LT(
      chi_square(
          logits,
          {.temperature = 2, .top_p = 0.75, .top_k = 5, .min_p = 0.61, .seed = 4},
          normalised({0, 0, e(1), 0, 0, e(0.75), 0})
      ),
      10.9  // 1 degree
  );
}

TEST(Sampler, ContinuesAfterPreemptionAsIfNothingHadHappened) {
  const SamplingParams params{
      .top_p = 0.95,
      .repetition_penalty = 1.3,
      .presence_penalty = 0.4,
      .frequency_penalty = 0.2,
      .seed = 9,
      .min_tokens = 12,
      .first_n_token_no_eos = 20,
      .stop_token_ids = {3},
      .logprobs = true,
      .top_logprobs = 3,
      .processed_logprobs = true,
      .golden_token_ids = {-1, 5, -1, 6}};
  const std::vector<int32_t> prompt = {1, 2, 2, 7};
  constexpr int64_t kLength = 30;
  const auto row = [](int64_t position) { return random_row(40, static_cast<uint64_t>(position)); };
  std::vector<double> scratch;
  Sampler whole(params, kEos, 9, prompt, {});
  std::vector<Draw> draws;
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < kLength; ++i) {
    draws.push_back(whole.draw(row(4 + i), 4 + i, scratch));
    tokens.push_back(draws.back().token);
  }
  EXPECT_EQ(tokens[1], 5);
  EXPECT_EQ(tokens[3], 6);
  for (int64_t cut = 0; cut < kLength; ++cut) {
    Sampler resumed(
        params, kEos, 9, prompt, std::span(tokens).first(static_cast<std::size_t>(cut))
    );
    EXPECT_EQ(resumed.num_outputs(), cut);
    for (int64_t i = cut; i < kLength; ++i) {
      EXPECT_EQ(resumed.draw(row(4 + i), 4 + i, scratch), draws[static_cast<std::size_t>(i)]);
    }
  }
}

TEST(Sampler, DrawsNoEosAmongTheFirstTokensAlsoWhenResumed) {
  const std::vector<float> logits = {9, 1, 2};
  const SamplingParams params{.temperature = 0, .first_n_token_no_eos = 3};
  std::vector<double> scratch;
  for (std::size_t done = 0; done < 6; ++done) {
    const std::vector<int32_t> outputs(done, 1);
    Sampler sampler(params, kEos, 0, {}, outputs);
    EXPECT_EQ(sampler.draw(logits, 10, scratch).token, done < 3 ? 2 : kEos);
  }
}

TEST(Sampler, FlagsRowsThatAreNotNumbersWhateverIsAsked) {
  std::vector<SamplingParams> all(4);
  all[1].temperature = 0;
  all[2].golden_token_ids = {1};
  all[3].allowed_token_ids = {1};
  for (const SamplingParams& params : all) {
    for (const float bad : {kNan, kInfinity}) {
      const Draw result = draw({0, 1, bad, 2}, params);
      EXPECT_FALSE(result.finite);
      EXPECT_EQ(result.token, -1);
    }
    EXPECT_FALSE(draw({-kInfinity, -kInfinity}, params).finite);
    EXPECT_TRUE(draw({-kInfinity, 0}, params).finite);
  }
}

TEST(Sampler, FlagsARowOfWhichNothingIsLeft) {
  const std::vector<float> logits = {0, -kInfinity, 1};
  EXPECT_FALSE(draw(logits, {.allowed_token_ids = {1}}).finite);
  EXPECT_FALSE(draw(logits, {.temperature = 0, .banned_token_ids = {0, 2}}).finite);
  Sampler sampler = sampler_of({.allowed_token_ids = {kEos}, .min_tokens = 1});
  std::vector<double> scratch;
  EXPECT_FALSE(sampler.draw(logits, 0, scratch).finite);
  EXPECT_EQ(sampler.num_outputs(), 0);
}

TEST(Sampler, ForcesGoldenTokensLastOfAll) {
  SamplingParams params{
      .temperature = 0,
      .banned_token_ids = {2},
      .min_tokens = 4,
      .logprobs = true,
      .golden_token_ids = {2, -1, kEos}};
  const std::vector<float> logits = {0, 3, 1};
  Sampler sampler = sampler_of(params);
  std::vector<double> scratch;
  const Draw first = sampler.draw(logits, 0, scratch);
  EXPECT_EQ(first.token, 2);
  EXPECT_FLOAT_EQ(first.logprob, static_cast<float>(log_probability(logits, 2)));
  EXPECT_EQ(sampler.draw(logits, 1, scratch).token, 1);
  EXPECT_EQ(sampler.draw(logits, 2, scratch).token, kEos);
  EXPECT_TRUE(sampler.is_end(kEos));
  EXPECT_EQ(sampler.draw(logits, 3, scratch).token, 1);

  params.processed_logprobs = true;
  EXPECT_EQ(draw(logits, params).logprob, -9999);
}

TEST(Sampler, ReportsTheModelsOwnLogprobsByDefault) {
  const std::vector<float> logits = {
      std::log(1.0f), std::log(5.0f), std::log(2.0f), -kInfinity, std::log(2.0f)};
  const Draw result = draw(
      logits, {.temperature = 0, .banned_token_ids = {1}, .logprobs = true, .top_logprobs = 1000}
  );
  EXPECT_EQ(result.token, 2);
  EXPECT_FLOAT_EQ(result.logprob, std::log(0.2f));
  ASSERT_EQ(result.top.size(), 5U);
  const std::vector<int32_t> order = {1, 2, 4, 0, 3};
  for (std::size_t i = 0; i < order.size(); ++i)
    EXPECT_EQ(result.top[i].token, order[i]);
  EXPECT_FLOAT_EQ(result.top[0].logprob, std::log(0.5f));
  EXPECT_EQ(result.top[4].logprob, -9999);
}

TEST(Sampler, ReportsProcessedLogprobsOnRequest) {
  const std::vector<float> logits = {std::log(1.0f), std::log(5.0f), std::log(2.0f), -kInfinity};
  const Draw cut =
      draw(logits, {.top_k = 2, .seed = 3, .top_logprobs = 3, .processed_logprobs = true});
  ASSERT_EQ(cut.top.size(), 3U);
  EXPECT_FLOAT_EQ(cut.top[0].logprob, std::log(5.0f / 7));
  EXPECT_FLOAT_EQ(cut.top[1].logprob, std::log(2.0f / 7));
  EXPECT_EQ(cut.top[2].logprob, -9999);
  const Draw greedy =
      draw(logits, {.temperature = 0, .logprobs = true, .processed_logprobs = true});
  EXPECT_EQ(greedy.token, 1);
  EXPECT_EQ(greedy.logprob, 0);
}

TEST(Sampler, ReportsNoLogprobsUnasked) {
  const Draw result = draw({1, 2}, {.temperature = 0});
  EXPECT_EQ(result.logprob, 0);
  EXPECT_TRUE(result.top.empty());
}

TEST(Sampler, DrawsTheSameWithAndWithoutLogprobs) {
  const std::vector<float> logits = random_row(3000, 2);
  for (int64_t position = 0; position < 100; ++position) {
    const SamplingParams plain{.temperature = 2, .top_p = 0.9, .seed = 5};
    SamplingParams reporting = plain;
    reporting.top_logprobs = 20;
    EXPECT_EQ(draw(logits, plain, position).token, draw(logits, reporting, position).token);
    reporting.processed_logprobs = true;
    EXPECT_EQ(draw(logits, plain, position).token, draw(logits, reporting, position).token);
  }
}

TEST(Sampler, EndsAtEosUnlessIgnoredAndAtStopTokens) {
  Sampler sampler = sampler_of({.stop_token_ids = {4, 5}});
  EXPECT_TRUE(sampler.is_end(kEos));
  EXPECT_TRUE(sampler.is_end(5));
  EXPECT_FALSE(sampler.is_end(1));
  EXPECT_FALSE(sampler_of({.ignore_eos = true}).is_end(kEos));
  EXPECT_TRUE(sampler_of({.ignore_eos = true, .stop_token_ids = {kEos}}).is_end(kEos));
}

TEST(Sampler, DrawsDifferentChoicesFromDifferentSeeds) {
  const std::vector<float> logits = random_row(5000, 3);
  std::vector<std::vector<int32_t>> texts;
  std::vector<double> scratch;
  for (int64_t choice = 0; choice < 8; ++choice) {
    Sampler sampler(SamplingParams{}, kEos, choice_seed(11, choice), {}, {});
    std::vector<int32_t>& text = texts.emplace_back();
    for (int64_t position = 0; position < 8; ++position)
      text.push_back(sampler.draw(logits, position, scratch).token);
  }
  std::sort(texts.begin(), texts.end());
  EXPECT_EQ(std::adjacent_find(texts.begin(), texts.end()), texts.end());
}

TEST(Score, GivesATokensLogprobAndTheBestOnes) {
  const std::vector<float> logits = random_row(1000, 4);
  const Draw result = score(logits, 17, 5);
  EXPECT_EQ(result.token, 17);
  EXPECT_FLOAT_EQ(result.logprob, static_cast<float>(log_probability(logits, 17)));
  ASSERT_EQ(result.top.size(), 5U);
  const auto best = best_tokens(std::span(logits), 5);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_EQ(result.top[i].token, best[i].token);
  EXPECT_FALSE(score(std::vector<float>{0, kNan}, 0, 1).finite);
}

TEST(Score, SumsTheProbabilitiesToOne) {
  const std::vector<float> logits = random_row(5000, 5);
  double sum = 0;
  for (int32_t token = 0; token < 5000; ++token)
    sum += std::exp(log_probability(logits, token));
  EXPECT_NEAR(sum, 1, 1e-12);
}

}  // namespace
}  // namespace di::sampling
