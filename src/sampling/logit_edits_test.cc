#include "sampling/logit_edits.h"

#include <limits>

#include <gtest/gtest.h>

namespace di::sampling {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr int32_t kEos = 0;

using Row = std::vector<double>;

/// `row` after the edits that `params` makes behind these tokens.
Row edited(
    const SamplingParams& params,
    Row row,
    const std::vector<int32_t>& prompt,
    const std::vector<int32_t>& outputs
) {
  LogitEdits edits(std::make_shared<const SamplingParams>(params), kEos, prompt);
  for (const int32_t token : outputs)
    edits.count_output(token);
  const Row before = row;
  edits.apply(row);
  if (!edits.any()) {
    EXPECT_EQ(row, before);
  }
  return row;
}

TEST(LogitEdits, DivideAndMultiplyByTheRepetitionPenaltyWhatWasSeen) {
  const Row row = {1, 2, -3, 4, -5};
  EXPECT_EQ(edited({.repetition_penalty = 2}, row, {1, 2, 2}, {3, 3}), (Row{1, 1, -6, 2, -5}));
  EXPECT_EQ(edited({.repetition_penalty = 0.5}, row, {1, 2}, {}), (Row{1, 4, -1.5, 4, -5}));
}

TEST(LogitEdits, TakePresenceOnceAndFrequencyEachTimeFromOutputsAlone) {
  const Row row = {1, 2, 3, 4};
  EXPECT_EQ(edited({.presence_penalty = 0.5}, row, {3}, {1, 2, 2}), (Row{1, 1.5, 2.5, 4}));
  EXPECT_EQ(edited({.frequency_penalty = 0.25}, row, {3}, {1, 2, 2}), (Row{1, 1.75, 2.5, 4}));
  EXPECT_EQ(
      edited({.presence_penalty = -1, .frequency_penalty = 0.5}, row, {}, {2, 2, 2}),
      (Row{1, 2, 2.5, 4})
  );
}

TEST(LogitEdits, ApplyEveryPenaltyAndThenTheBias) {
  const SamplingParams params{
      .repetition_penalty = 2,
      .presence_penalty = 0.5,
      .frequency_penalty = 0.25,
      .logit_bias = {{1, 10}, {0, -1}}};
  EXPECT_EQ(edited(params, {1, 8, -2}, {2}, {1, 1}), (Row{0, 13, -4}));
}

TEST(LogitEdits, LeaveOnlyWhatIsAllowedAndNotBanned) {
  const Row row = {1, 2, 3, 4};
  EXPECT_EQ(edited({.allowed_token_ids = {3, 1, 1}}, row, {}, {}), (Row{kNever, 2, kNever, 4}));
  EXPECT_EQ(
      edited({.allowed_token_ids = {3, 1}, .banned_token_ids = {1}}, row, {}, {}),
      (Row{kNever, kNever, kNever, 4})
  );
  EXPECT_EQ(
      edited({.logit_bias = {{2, 100}}, .banned_token_ids = {2}}, row, {}, {}),
      (Row{1, 2, kNever, 4})
  );
}

TEST(LogitEdits, BanEveryEndBeforeMinTokens) {
  const SamplingParams params{.min_tokens = 2, .stop_token_ids = {2}};
  const Row row = {1, 2, 3};
  EXPECT_EQ(edited(params, row, {}, {}), (Row{kNever, 2, kNever}));
  EXPECT_EQ(edited(params, row, {}, {1}), (Row{kNever, 2, kNever}));
  EXPECT_EQ(edited(params, row, {}, {1, 1}), row);
}

TEST(LogitEdits, LeaveAnIgnoredEosToMinTokens) {
  const SamplingParams params{.min_tokens = 2, .ignore_eos = true};
  EXPECT_EQ(edited(params, {1, 2, 3}, {}, {}), (Row{1, 2, 3}));
}

TEST(LogitEdits, BanEosByTheIndexOfTheOutput) {
  const SamplingParams params{.first_n_token_no_eos = 3, .stop_token_ids = {2}};
  const Row row = {1, 2, 3};
  for (std::size_t outputs = 0; outputs < 5; ++outputs) {
    const Row expected = {outputs < 3 ? kNever : 1, 2, 3};
    EXPECT_EQ(edited(params, row, {1, 1}, std::vector<int32_t>(outputs, 1)), expected);
  }
}

TEST(LogitEdits, KeepForbiddenTokensForbidden) {
  const SamplingParams params{
      .repetition_penalty = 0.01, .presence_penalty = -2, .logit_bias = {{1, 100}}};
  EXPECT_EQ(edited(params, {1, kNever}, {1}, {1}), (Row{1, kNever}));
}

}  // namespace
}  // namespace di::sampling
