// Drafts change no text's law: verification of whole requests, by enumeration of every draft and
// every region of random numbers, by comparison with runs that do not draft, and by long texts.
#include "sampling/draft_verifier.h"

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "sampling/draft_testing.h"
#include "sampling/philox.h"

namespace di::sampling {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr auto kExactSeed = VerificationRule::kExactSeed;
constexpr auto kBlock = VerificationRule::kBlock;

/// Draws of a run without drafts.
std::vector<Draw> plain_run(LogitModel& target, Sampler sampler, Tokens text, std::size_t length) {
  std::vector<Draw> draws;
  std::vector<double> scratch;
  while (draws.size() < length) {
    draws.push_back(sampler.draw(target.behind(text), std::ssize(text) - 1, scratch));
    text.push_back(draws.back().token);
    if (!draws.back().finite || sampler.is_end(text.back())) break;
  }
  return draws;
}

/// Drafts for `plain` outputs behind the first `from`: some that are right, some guesses.
Tokens half_right_drafts(const std::vector<Draw>& plain, std::size_t from, std::mt19937& random) {
  Tokens drafts;
  for (std::size_t count = random() % 6; count > 0; --count) {
    const std::size_t at = from + drafts.size();
    const bool guess = at >= plain.size() || plain[at].token < 0 || random() % 5 == 0;
    drafts.push_back(guess ? static_cast<int32_t>(random() % 8) : plain[at].token);
  }
  return drafts;
}

TEST(ExactSeedDrafts, GiveTheDrawsOfARunWithoutDraftsBitForBit) {
  constexpr std::size_t kLength = 24;
  const Tokens prompt = {3, 1, 2, 2};
  std::mt19937 random(1);
  int64_t accepted = 0;
  for (unsigned run = 0; run < 400; ++run) {
    LogitModel target(run, 8, 2);
    const SamplingParams params = random_params(random);
    Sampler sampler(params, kEos, run, prompt, {});
    const std::vector<Draw> plain = plain_run(target, sampler, prompt, kLength);
    std::vector<Draw> draws;
    RowsScratch scratch;
    while (draws.size() < plain.size()) {
      const Tokens text = joined(prompt, tokens_of(draws));
      const OwnedRows block(target, text, half_right_drafts(plain, draws.size(), random), {});
      const VerifiedDraws news = verify_drafts(sampler, kExactSeed, block.rows, scratch);
      draws.insert(draws.end(), news.draws.begin(), news.draws.end());
      accepted += news.accepted;
    }
    ASSERT_EQ(sampler.num_outputs(), std::ssize(draws));
    draws.resize(plain.size());
    ASSERT_EQ(draws, plain) << "run " << run;
  }
  EXPECT_GT(accepted, 1000);
}

TEST(ExactSeedDrafts, OfTheTargetItselfAreAllAccepted) {
  std::mt19937 random(2);
  for (unsigned run = 0; run < 200; ++run) {
    LogitModel target(run, 200, 2);
    SamplingParams params = random_params(random);
    params.stop_token_ids = {};
    params.ignore_eos = true;
    Sampler sampler(params, kEos, run, {}, {});
    const Tokens drafts = tokens_of(plain_run(target, sampler, {5, 6}, 5));
    const OwnedRows block(target, {5, 6}, drafts, {});
    RowsScratch scratch;
    EXPECT_EQ(verify_drafts(sampler, kExactSeed, block.rows, scratch).accepted, 5);
  }
}

/// Drafts of a random request by block verification, and what became of them.
struct BlockRun {
  explicit BlockRun(unsigned run, std::mt19937& random)
      : params(random_params(random)),
        target(run, 6, 1.5F),
        drafter(run + 1000, 6, 1.5F),
        sampler(params, kEos, run, prompt, before) {
    const Tokens text = joined(prompt, before);
    const DraftedTokens drafted(drafter, sampler, kBlock, text, 4);
    const OwnedRows block(target, text, drafted.tokens, drafted.laws);
    RowsScratch scratch;
    drafts = drafted.tokens;
    verified = verify_drafts(sampler, kBlock, block.rows, scratch);
  }

  SamplingParams params;
  Tokens prompt = {1, 3}, before = {2, 5};
  LogitModel target, drafter;
  Sampler sampler;
  Tokens drafts;
  VerifiedDraws verified;
};

TEST(BlockDrafts, AreToldAsADrawAtTheirPlaceWouldBe) {
  std::mt19937 random(5);
  std::size_t told = 0;
  for (unsigned run = 0; run < 400; ++run) {
    BlockRun block(run, random);
    // The same tokens, forced, report what they would have had by chance; tokens that the request
    // forces anyway are among them.
    SamplingParams forced = block.params;
    const Tokens tokens = tokens_of(block.verified.draws);
    forced.golden_token_ids = joined(block.before, tokens);
    Sampler expected(forced, kEos, run, block.prompt, block.before);
    Tokens text = joined(block.prompt, block.before);
    std::vector<double> scratch;
    for (const Draw& draw : block.verified.draws) {
      if (!draw.finite) break;
      const Draw other = expected.draw(block.target.behind(text), std::ssize(text) - 1, scratch);
      ASSERT_EQ(draw, other) << "run " << run;
      text.push_back(draw.token);
      ++told;
    }
  }
  EXPECT_GT(told, 400U);
}

TEST(BlockDrafts, LeaveTheSamplerCountingWhatWasTold) {
  std::mt19937 random(6);
  for (unsigned run = 0; run < 200; ++run) {
    BlockRun block(run, random);
    if (!block.verified.draws.back().finite) continue;
    const Tokens outputs = joined(block.before, tokens_of(block.verified.draws));
    Sampler fresh(block.params, kEos, run, block.prompt, outputs);
    ASSERT_EQ(block.sampler.num_outputs(), fresh.num_outputs());
    std::vector<double> scratch;
    const std::vector<float>& row = block.target.behind(joined(block.prompt, outputs));
    for (int64_t position = 20; position < 24; ++position)
      ASSERT_EQ(block.sampler.draw(row, position, scratch), fresh.draw(row, position, scratch));
  }
}

/// A block of drafts 1, 2, 3 that the target agrees with, at temperature 0.
struct AgreedBlock {
  explicit AgreedBlock(SamplingParams params = {})
      : sampler([&] {
          params.temperature = 0;
          return Sampler(params, kEos, 0, {}, {});
        }()) {
    target.set({9}, {0, 1, 0, 0, 0});
    target.set({9, 1}, {0, 0, 1, 0, 0});
    target.set({9, 1, 2}, {0, 0, 0, 1, 0});
    target.set({9, 1, 2, 3}, {0, 0, 0, 0, 1});
  }

  VerifiedDraws verify(VerificationRule rule, const Tokens& drafts = {1, 2, 3}) {
    const OwnedRows block(target, {9}, drafts, {});
    RowsScratch scratch;
    return verify_drafts(sampler, rule, block.rows, scratch);
  }

  LogitModel target{0, 5, 1};
  Sampler sampler;
};

class EitherRule : public ::testing::TestWithParam<VerificationRule> {};

TEST_P(EitherRule, TellsTheDraftsAndTheTokenBehind) {
  AgreedBlock block;
  const VerifiedDraws result = block.verify(GetParam());
  EXPECT_EQ(tokens_of(result.draws), (Tokens{1, 2, 3, 4}));
  EXPECT_EQ(result.accepted, 3);
  EXPECT_EQ(block.sampler.num_outputs(), 4);
}

TEST_P(EitherRule, TellsTheTargetsTokenInPlaceOfAWrongDraft) {
  AgreedBlock block;
  const VerifiedDraws result = block.verify(GetParam(), {1, 4, 3});
  EXPECT_EQ(tokens_of(result.draws), (Tokens{1, 2}));
  EXPECT_EQ(result.accepted, 1);
}

TEST_P(EitherRule, DrawsOneTokenWhenNothingWasDrafted) {
  AgreedBlock block;
  EXPECT_EQ(tokens_of(block.verify(GetParam(), {}).draws), Tokens{1});
}

TEST_P(EitherRule, StopsBehindADraftThatEndsTheChoice) {
  AgreedBlock block({.stop_token_ids = {2}});
  block.target.set({9, 1, 2}, {kNan, 0, 0, 0, 0});  // nobody looks
  const VerifiedDraws result = block.verify(GetParam());
  EXPECT_EQ(tokens_of(result.draws), (Tokens{1, 2}));
  EXPECT_EQ(result.accepted, 2);
}

TEST_P(EitherRule, EndsWithARowThatIsNotFiniteOnlyWhenTheTextReachesIt) {
  AgreedBlock reached;
  reached.target.set({9, 1, 2}, {kNan, 0, 0, 0, 0});
  const VerifiedDraws broken = reached.verify(GetParam());
  EXPECT_EQ(tokens_of(broken.draws), (Tokens{1, 2, -1}));
  EXPECT_FALSE(broken.draws.back().finite);
  EXPECT_EQ(broken.accepted, 2);
  EXPECT_EQ(reached.sampler.num_outputs(), 2);

  AgreedBlock rejected;
  rejected.target.set({9, 1, 4}, {kNan, 0, 0, 0, 0});
  EXPECT_EQ(tokens_of(rejected.verify(GetParam(), {1, 4, 3}).draws), (Tokens{1, 2}));
}

TEST_P(EitherRule, AcceptsTheDraftOfAForcedTokenAndNoOther) {
  AgreedBlock block({.golden_token_ids = {-1, 3, -1}});
  const VerifiedDraws wrong = block.verify(GetParam());
  EXPECT_EQ(tokens_of(wrong.draws), (Tokens{1, 3}));
  EXPECT_EQ(wrong.accepted, 1);
  AgreedBlock same({.golden_token_ids = {-1, 3, -1}});
  same.target.set({9, 1, 3}, {0, 0, 0, 0, 1});
  EXPECT_EQ(tokens_of(same.verify(GetParam(), {1, 3}).draws), (Tokens{1, 3, 4}));
}

INSTANTIATE_TEST_SUITE_P(
    Rules,
    EitherRule,
    ::testing::Values(kExactSeed, kBlock),
    [](const ::testing::TestParamInfo<VerificationRule>& rule) {
      return rule.param == kBlock ? "Block" : "ExactSeed";
    }
);

}  // namespace
}  // namespace di::sampling
