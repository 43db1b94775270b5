#include "sampling/params.h"

#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "base/error.h"

namespace di::sampling {
namespace {

constexpr int64_t kVocab = 100;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The message of what validate() throws, "" when it does not.
std::string refusal(const SamplingParams& params) {
  try {
    validate(params, kVocab);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

void expect_refused(const char* field, const SamplingParams& params) {
  EXPECT_NE(refusal(params).find(field), std::string::npos) << field << ": " << refusal(params);
}

TEST(Validate, AcceptsTheDefaultsAndEveryLimit) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({.temperature = 0, .top_p = 1e-9, .top_k = -1, .min_p = 1}), "");
  EXPECT_EQ(
      refusal(
          {.repetition_penalty = 100,
           .presence_penalty = -2,
           .frequency_penalty = 2,
           .logit_bias = {{0, -100}, {99, 100}},
           .banned_token_ids = {0, 99},
           .max_tokens = kMaxTokens,
           .min_tokens = kMaxTokens,
           .first_n_token_no_eos = kMaxTokens,
           .stop = {std::string(kMaxStopStringBytes, 'x')},
           .n = kMaxChoices,
           .top_logprobs = kMaxTopLogprobs,
           .golden_token_ids = {-1, 0, 99}}
      ),
      ""
  );
}

TEST(Validate, RefusesNumbersThatAreNone) {
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    expect_refused("temperature", {.temperature = bad});
    expect_refused("top_p", {.top_p = bad});
    expect_refused("min_p", {.min_p = bad});
    expect_refused("repetition_penalty", {.repetition_penalty = bad});
    expect_refused("presence_penalty", {.presence_penalty = bad});
    expect_refused("frequency_penalty", {.frequency_penalty = bad});
    expect_refused("logit_bias", {.logit_bias = {{3, static_cast<float>(bad)}}});
  }
}

TEST(Validate, NamesTheFieldThatIsOutOfRange) {
  expect_refused("temperature", {.temperature = -1});
  expect_refused("top_p", {.top_p = 0});
  expect_refused("top_p", {.top_p = 1.5});
  expect_refused("top_k", {.top_k = -2});
  expect_refused("min_p", {.min_p = 1.01});
  expect_refused("repetition_penalty", {.repetition_penalty = 0});
  expect_refused("presence_penalty", {.presence_penalty = 2.1});
  expect_refused("frequency_penalty", {.frequency_penalty = -2.1});
  expect_refused("logit_bias of token 3", {.logit_bias = {{3, 101}}});
  expect_refused("max_tokens", {.max_tokens = 0});
  expect_refused("min_tokens", {.max_tokens = 4, .min_tokens = 5});
  expect_refused("min_tokens", {.min_tokens = -1});
  expect_refused("first_n_token_no_eos", {.first_n_token_no_eos = -1});
  expect_refused("n is", {.n = 0});
  expect_refused("n is", {.n = kMaxChoices + 1});
  expect_refused("top_logprobs", {.top_logprobs = kMaxTopLogprobs + 1});
  expect_refused("top_logprobs", {.top_logprobs = -1});
}

TEST(Validate, BoundsEveryTokenIdByTheVocabulary) {
  for (const int32_t bad : {-1, 100, 1 << 30}) {
    expect_refused("logit_bias", {.logit_bias = {{bad, 1}}});
    expect_refused("allowed_token_ids", {.allowed_token_ids = {1, bad}});
    expect_refused("banned_token_ids", {.banned_token_ids = {bad}});
    expect_refused("stop_token_ids", {.stop_token_ids = {bad}});
  }
  expect_refused("golden_token_ids", {.golden_token_ids = {100}});
  expect_refused("golden_token_ids", {.golden_token_ids = {-2}});
}

TEST(Validate, BoundsTheSizeOfEveryList) {
  expect_refused("logit_bias", {.logit_bias = std::vector<LogitBias>(1025)});
  expect_refused("allowed_token_ids", {.allowed_token_ids = std::vector<int32_t>(101)});
  expect_refused("banned_token_ids", {.banned_token_ids = std::vector<int32_t>(101)});
  expect_refused("stop_token_ids", {.stop_token_ids = std::vector<int32_t>(1025)});
  expect_refused("stop", {.stop = std::vector<std::string>(65, "x")});
  expect_refused("stop", {.stop = {std::string(4097, 'x')}});
  expect_refused("golden_token_ids", {.golden_token_ids = std::vector<int32_t>((1 << 20) + 1)});
}

TEST(Validate, RefusesWhatContradictsItself) {
  expect_refused("logit_bias", {.logit_bias = {{3, 1}, {4, 1}, {3, 1}}});
  expect_refused("banned_token_ids", {.allowed_token_ids = {3, 4}, .banned_token_ids = {4, 3, 5}});
  std::vector<int32_t> all(kVocab);
  for (int32_t i = 0; i < kVocab; ++i)
    all[static_cast<std::size_t>(i)] = i;
  expect_refused("banned_token_ids", {.banned_token_ids = all});
  expect_refused("stop", {.stop = {"a", ""}});
}

TEST(ChoiceSeed, KeepsTheSeedForTheFirstChoiceAndDiffersForOthers) {
  std::set<uint64_t> seeds;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    EXPECT_EQ(choice_seed(seed, 0), seed);
    for (int64_t choice = 0; choice < kMaxChoices; ++choice)
      seeds.insert(choice_seed(seed, choice));
  }
  EXPECT_EQ(seeds.size(), 3U * kMaxChoices);
}

TEST(RequestSeed, DiffersBetweenRequestsAndFromEveryChoice) {
  std::set<uint64_t> seeds;
  for (int64_t i = 0; i < kMaxChoices; ++i) {
    seeds.insert(request_seed(7, i));
    seeds.insert(choice_seed(7, i));
  }
  EXPECT_EQ(seeds.size(), 2U * kMaxChoices);
}

}  // namespace
}  // namespace di::sampling
