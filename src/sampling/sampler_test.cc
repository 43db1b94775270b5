#include "sampling/sampler.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "sampling/philox.h"

namespace di::sampling {
namespace {

int32_t sample(const std::vector<float>& logits, const SamplingParams& params, int64_t position) {
  std::vector<double> scratch;
  return Sampler(params, 0, params.seed.value_or(0), {}, {}).draw(logits, position, scratch).token;
}

TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(
      philox4x32({0, 0, 0, 0}, {0, 0}),
      (std::array<uint32_t, 4>{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u})
  );
  EXPECT_EQ(
      philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
      (std::array<uint32_t, 4>{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu})
  );
  EXPECT_EQ(
      philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
      (std::array<uint32_t, 4>{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u})
  );
}

TEST(Sampler, TakesTheLowestOfEqualBestTokensAtTemperatureZero) {
  const std::vector<float> logits = {1, 3, 2, 3};
  EXPECT_EQ(sample(logits, {.temperature = 0}, 5), 1);
}

TEST(Sampler, RepeatsItsDrawsForTheSameSeedAndPosition) {
  const std::vector<float> logits = {0, 0.5f, 1, 0.25f};
  for (int64_t position = 0; position < 100; ++position) {
    const SamplingParams params{.seed = 42};
    EXPECT_EQ(sample(logits, params, position), sample(logits, params, position));
  }
}

TEST(Sampler, KeepsOnlyTheBestTokensOfTopKAndTopP) {
  const std::vector<float> logits = {0, 4, 1, 3.9f, -2};
  for (int64_t position = 0; position < 500; ++position) {
    const int32_t by_k = sample(logits, {.top_k = 2, .seed = 1}, position);
    EXPECT_TRUE(by_k == 1 || by_k == 3);
    EXPECT_EQ(sample(logits, {.top_p = 0.3, .seed = 1}, position), 1);
  }
}

TEST(Sampler, FollowsTheSoftmaxOverManyPositions) {
  const std::vector<float> logits = {0, 1, 2, -1, 0.5f};
  std::vector<double> expected;
  for (int32_t token = 0; token < 5; ++token) {
    expected.push_back(std::exp(log_probability(logits, token)));
  }
  constexpr int64_t kDraws = 100000;
  std::vector<int64_t> counts(5, 0);
  for (int64_t position = 0; position < kDraws; ++position) {
    ++counts[static_cast<std::size_t>(sample(logits, {.seed = 7}, position))];
  }
  double chi_square = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double mean = expected[i] * kDraws;
    const double off = static_cast<double>(counts[i]) - mean;
    chi_square += off * off / mean;
  }
  EXPECT_LT(chi_square, 18.5);  // 4 degrees of freedom, p = 0.001
}

TEST(Sampler, RefusesLogitsThatAreNotNumbers) {
  const std::vector<float> logits = {0, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(sample(logits, {}, 0), -1);
  EXPECT_EQ(sample(logits, {.temperature = 0}, 0), -1);
}

TEST(Sampler, NamesTheParameterThatIsOutOfRange) {
  EXPECT_THROW(validate({.temperature = -1}, 10), Error);
  EXPECT_THROW(validate({.top_p = 0}, 10), Error);
  EXPECT_THROW(validate({.top_p = 1.5}, 10), Error);
  EXPECT_THROW(validate({.top_k = -3}, 10), Error);
}

}  // namespace
}  // namespace di::sampling
