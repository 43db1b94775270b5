// Long texts of a chain, whose next token depends on the last one only, follow its law when they
// are drafted and verified block by block.
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "sampling/draft_testing.h"
#include "sampling/philox.h"

namespace di::sampling {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

constexpr double kTarget[3][3] = {{0.2, 0.5, 0.3}, {0.6, 0.1, 0.3}, {0.25, 0.35, 0.4}};
constexpr double kDraft[3][3] = {{0.5, 0.3, 0.2}, {0.3, 0.3, 0.4}, {0.1, 0.8, 0.1}};

std::vector<float> logits_behind(const double (&chain)[3][3], int32_t token) {
  std::vector<float> row;
  for (const double probability : chain[token])
    row.push_back(static_cast<float>(std::log(probability)));
  return row;
}

int32_t token_of(const DraftLaw& law, double share) {
  std::size_t at = 0;
  while (at + 1 < law.size() && share >= law[at].probability)
    share -= law[at++].probability;
  return law[at].token;
}

/// Random numbers of one block: for its drafts, and for the verdict.
struct Numbers {
  std::function<double(int64_t anchor, int64_t index)> draft;
  std::function<BlockNumbers(int64_t anchor, std::size_t count)> verify;
};

/// How far the pairs of tokens in a long text lie from their law: chi-square of 6 degrees of
/// freedom, above 22.46 once in a thousand seeds. How much is verified depends on the text.
double pairs_of_long_text(const Numbers& numbers) {
  constexpr int64_t kTokens = 100'000;
  Sampler sampler({.max_tokens = kMaxTokens, .ignore_eos = true}, kEos, 0, {}, {});
  std::vector<double> scratch;
  RowsScratch rows_scratch;
  Tokens text = {0};
  while (std::ssize(text) <= kTokens) {
    const int64_t anchor = std::ssize(text) - 1;
    const int64_t k = 1 + text.back();
    Tokens drafts;
    std::vector<DraftLaw> laws;
    std::vector<float> rows = logits_behind(kTarget, text.back());
    for (int64_t i = 0; i < k; ++i) {
      const auto row = logits_behind(kDraft, drafts.empty() ? text.back() : drafts.back());
      laws.push_back(
          choose_draft(sampler, VerificationRule::kBlock, {row, anchor, drafts}, scratch).law
      );
      drafts.push_back(token_of(laws.back(), numbers.draft(anchor, i)));
      const auto next = logits_behind(kTarget, drafts.back());
      rows.insert(rows.end(), next.begin(), next.end());
    }
    const DraftedRows block{
        .logits = View<const float, 2>(rows.data(), k + 1, 3),
        .drafts = drafts,
        .laws = laws,
        .anchor_position = anchor};
    const BlockNumbers verdict = numbers.verify(anchor, drafts.size());
    text = joined(
        std::move(text), tokens_of(verify_block(sampler, block, verdict, rows_scratch).draws)
    );
  }
  double pairs[3][3] = {};
  for (std::size_t i = 1; i < text.size(); ++i)
    ++pairs[text[i - 1]][text[i]];
  double chi_square = 0;
  for (int row = 0; row < 3; ++row) {
    const double all = pairs[row][0] + pairs[row][1] + pairs[row][2];
    for (int token = 0; token < 3; ++token) {
      const double expected = all * kTarget[row][token];
      chi_square += (pairs[row][token] - expected) * (pairs[row][token] - expected) / expected;
    }
  }
  return chi_square;
}

TEST(BlockDrafts, LongTextsHaveTheTargetsLaw) {
  for (const uint64_t seed : {9U, 10U}) {
    const Numbers numbers{
        .draft = [=](int64_t anchor, int64_t i) { return draft_share(seed, anchor, i); },
        .verify = [=](int64_t anchor, std::size_t k) { return block_numbers(seed, anchor, k); }};
    EXPECT_LT(pairs_of_long_text(numbers), 22.46);
  }
}

// Numbers that are counted by the position that they judge are met again by the next block.
TEST(BlockDrafts, NumbersThatJudgeAPositionTwiceChangeTheLaw) {
  const auto number = [](int64_t position, Stream stream) { return uniform(9, position, stream); };
  const Numbers numbers{
      .draft = [=](int64_t anchor, int64_t i) { return number(anchor + i, Stream::kDraft); },
      .verify =
          [=](int64_t anchor, std::size_t k) {
            BlockNumbers block{.share = number(anchor, Stream::kBehindDrafts)};
            for (std::size_t i = 0; i < k; ++i)
              block.coins.push_back(number(anchor + static_cast<int64_t>(i), Stream::kAcceptance));
            return block;
          }};
  EXPECT_GT(pairs_of_long_text(numbers), 50);
}

}  // namespace
}  // namespace di::sampling
