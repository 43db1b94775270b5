// What a drafter draws from: the sampler's own pipeline over the drafter's logits.
#include "sampling/draft_law.h"

#include <limits>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "sampling/draft_testing.h"
#include "sampling/philox.h"

namespace di::sampling {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

constexpr auto kExactSeed = VerificationRule::kExactSeed;
constexpr auto kBlock = VerificationRule::kBlock;

DraftChoice choose(
    const SamplingParams& params,
    VerificationRule rule,
    const std::vector<float>& logits,
    const Tokens& before = {},
    int64_t anchor_position = 7
) {
  Sampler sampler(params, kEos, 11, {}, {});
  std::vector<double> scratch;
  return choose_draft(sampler, rule, {logits, anchor_position, before}, scratch);
}

std::vector<float> wide_row() {
  return LogitModel(1, 1000, 2).behind({});
}

TEST(RuleFor, IsExactSeedWhereATextIsToBeRepeated) {
  const SamplingParams warm{.temperature = 0.7}, cold{.temperature = 0};
  EXPECT_EQ(rule_for(warm, false), kBlock);
  EXPECT_EQ(rule_for(warm, true), kExactSeed);
  EXPECT_EQ(rule_for(cold, false), kExactSeed);
  EXPECT_EQ(rule_for(warm, false, VerificationMode::kExactSeed), kExactSeed);
  EXPECT_EQ(rule_for(warm, true, VerificationMode::kBlock), kBlock);
  EXPECT_EQ(rule_for(cold, true, VerificationMode::kBlock), kExactSeed);
}

TEST(DraftLaw, ForExactSeedIsWhatAColdSamplerDraws) {
  std::mt19937 random(1);
  for (unsigned run = 0; run < 200; ++run) {
    SamplingParams params = random_params(random);
    params.temperature = 1;
    const std::vector<float> row = LogitModel(run, 300, 2).behind({});
    const Tokens before(run % 4, 3);
    const DraftChoice choice = choose(params, kExactSeed, row, before);
    params.temperature = 0;
    Sampler sampler(params, kEos, 11, {}, before);
    std::vector<double> scratch;
    EXPECT_EQ(choice.token, sampler.draw(row, 7, scratch).token);
    EXPECT_TRUE(choice.law.empty());
  }
}

TEST(DraftLaw, HasTheBestTokensInTheirOrder) {
  const std::vector<float> row = wide_row();
  const DraftLaw law = choose({.temperature = 1.5}, kBlock, row).law;
  ASSERT_EQ(std::ssize(law), kDraftCandidates);
  const auto best = best_tokens(std::span(row), kDraftCandidates);
  double sum = 0;
  for (std::size_t i = 0; i < law.size(); ++i) {
    EXPECT_EQ(law[i].token, best[i].token);
    EXPECT_NEAR(
        law[i].probability / law[0].probability,
        std::exp((best[i].logit - best[0].logit) / 1.5),
        1e-9
    );
    sum += law[i].probability;
  }
  EXPECT_NEAR(sum, 1, 1e-12);
}

TEST(DraftLaw, IsCutAndEditedAsTheRequestSays) {
  const std::vector<float> row = {4, 5, 3, 2, 1};
  const auto tokens = [&](const SamplingParams& params, const Tokens& before = {}) {
    Tokens in_law;
    for (const DraftShare& share : choose(params, kBlock, row, before).law)
      in_law.push_back(share.token);
    return in_law;
  };
  EXPECT_EQ(tokens({.top_k = 2}), (Tokens{1, 0}));
  EXPECT_EQ(tokens({.top_p = 0.8}), (Tokens{1, 0}));
  EXPECT_EQ(tokens({.min_p = 0.1}), (Tokens{1, 0, 2}));
  EXPECT_EQ(tokens({.banned_token_ids = {1, 3}}), (Tokens{0, 2, 4}));
  EXPECT_EQ(tokens({.logit_bias = {{4, 5}}, .allowed_token_ids = {4, 2}}), (Tokens{4, 2}));
  EXPECT_EQ(tokens({.min_tokens = 2}), (Tokens{1, 2, 3, 4}));
  EXPECT_EQ(tokens({.min_tokens = 2}, {3, 3}), (Tokens{1, 0, 2, 3, 4}));
  EXPECT_EQ(tokens({.top_k = 2, .frequency_penalty = 2}, {1}), (Tokens{0, 1}));
}

TEST(DraftLaw, LeavesOutWhatLiesFarBelowTheBestToken) {
  const std::vector<float> row = {0, 8, 0.5, 8 - 7.7F, 8 - 7.5F, 3};
  Tokens in_law;
  for (const DraftShare& share : choose({}, kBlock, row).law)
    in_law.push_back(share.token);
  EXPECT_EQ(in_law, (Tokens{1, 5, 2, 4}));
  EXPECT_EQ(choose({.temperature = 2}, kBlock, row).law.size(), row.size());
}

TEST(DraftLaw, IsEmptyForTheOnlyChoice) {
  const std::vector<float> row = {1, 3, 2, 3};
  for (const VerificationRule rule : {kBlock, kExactSeed}) {
    EXPECT_EQ(choose({.temperature = 0}, rule, row).token, 1);
    EXPECT_EQ(choose({.top_k = 1}, rule, row).token, 1);
    EXPECT_EQ(choose({.golden_token_ids = {-1, 2}}, rule, row, {0}).token, 2);
    EXPECT_TRUE(choose({.temperature = 0}, rule, row).law.empty());
    EXPECT_TRUE(choose({.top_k = 1}, rule, row).law.empty());
    EXPECT_TRUE(choose({.golden_token_ids = {-1, 2}}, rule, row, {0}).law.empty());
  }
}

TEST(DraftLaw, IsWhatIsDrawnFromWithTheNumberOfTheDraft) {
  const std::vector<float> row = wide_row();
  for (int64_t anchor = 0; anchor < 200; ++anchor) {
    const Tokens before(static_cast<std::size_t>(anchor % 3), 5);
    const DraftChoice choice = choose({}, kBlock, row, before, anchor);
    const double share = draft_share(11, anchor, std::ssize(before));
    std::size_t at = 0;
    for (double sum = choice.law[0].probability; sum <= share;
         sum += choice.law[++at].probability) {
    }
    EXPECT_EQ(choice.token, choice.law[at].token);
  }
}

TEST(DraftLaw, OfARowWithoutAnyTokenIsOneToken) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const VerificationRule rule : {kBlock, kExactSeed}) {
    const DraftChoice choice = choose({}, rule, {1, kNan, 2});
    EXPECT_EQ(choice.token, 0);
    EXPECT_TRUE(choice.law.empty());
  }
}

TEST(DraftLaw, LeavesTheSamplerAsItWas) {
  const SamplingParams params{.repetition_penalty = 1.5, .frequency_penalty = 1};
  const std::vector<float> row = LogitModel(3, 8, 1).behind({});
  Sampler sampler(params, kEos, 11, {{1, 2}}, {{2, 3}}), untouched = sampler;
  std::vector<double> scratch;
  const Tokens before = {2, 2, 5, 1, 5, 6};
  choose_draft(sampler, kBlock, {row, 3, before}, scratch);
  EXPECT_EQ(sampler.num_outputs(), 2);
  std::vector<double> left, right;
  sampler.row(row, left);
  untouched.row(row, right);
  EXPECT_EQ(left, right);
}

}  // namespace
}  // namespace di::sampling
