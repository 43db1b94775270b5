#include "sampling/params_json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace di::sampling {
namespace {

SamplingParams from_text(const std::string& text) {
  return params_from_json(Json::parse(text, "test"));
}

/// The message of what params_from_json() throws.
std::string refusal(const std::string& text) {
  try {
    from_text(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

SamplingParams everything() {
  return {
      .temperature = 0.7,
      .top_p = 0.9,
      .top_k = 40,
      .min_p = 0.05,
      .repetition_penalty = 1.1,
      .presence_penalty = 0.5,
      .frequency_penalty = -0.5,
      .logit_bias = {{7, -2.5F}, {3, 0.1F}},
      .allowed_token_ids = {1, 2, 3},
      .banned_token_ids = {4},
      .seed = ~uint64_t{0},
      .max_tokens = 100,
      .min_tokens = 5,
      .first_n_token_no_eos = 2,
      .ignore_eos = true,
      .stop_token_ids = {9},
      .stop = {"\n\n", "é"},
      .n = 3,
      .logprobs = true,
      .top_logprobs = 5,
      .prompt_logprobs = true,
      .processed_logprobs = true,
      .golden_token_ids = {-1, 6}};
}

TEST(ParamsJson, ComesBackAsItWas) {
  const std::string text = to_json(everything()).dump();
  EXPECT_EQ(from_text(text), everything());
}

TEST(ParamsJson, LeavesOutWhatIsAtItsDefault) {
  EXPECT_EQ(to_json({}).dump(), "{}");
  EXPECT_EQ(from_text("{}"), SamplingParams{});
  EXPECT_EQ(
      to_json({.temperature = 0, .logit_bias = {{5, 1}}, .seed = 0}).dump(),
      R"({"temperature": 0.0, "logit_bias": {"5": 1.0}, "seed": 0})"
  );
}

TEST(ParamsJson, HasAMemberForEveryField) {
  EXPECT_EQ(to_json(everything()).as_object().size(), 23U);
}

TEST(ParamsJson, TakesNullForTheDefaultAndIntegersForNumbers) {
  const SamplingParams params = from_text(R"({"temperature": 2, "seed": null, "stop": null})");
  EXPECT_EQ(params, (SamplingParams{.temperature = 2}));
}

TEST(ParamsJson, NamesAMemberThatIsNoField) {
  EXPECT_NE(refusal(R"({"temprature": 1})").find("\"temprature\""), std::string::npos);
  EXPECT_NE(refusal("[]"), "");
}

TEST(ParamsJson, NamesTheFieldWhoseValueIsOfAnotherKind) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"temperature": "hot"})", "temperature: expected a number, found string \"hot\""},
      {R"({"top_k": 1.5})", "top_k: expected an integer"},
      {R"({"top_k": 9223372036854775808})", "top_k: expected an integer"},
      {R"({"ignore_eos": 1})", "ignore_eos: expected true or false"},
      {R"({"seed": -1})", "seed: expected an integer from 0"},
      {R"({"stop": "x"})", "stop: expected an array of strings"},
      {R"({"stop": [1]})", "stop: expected an array of strings"},
      {R"({"stop_token_ids": [1, "2"]})", "stop_token_ids: expected an array of token ids"},
      {R"({"banned_token_ids": [4294967296]})", "banned_token_ids: expected an array of token ids"},
      {R"({"logit_bias": [1]})", "logit_bias: expected an object"},
      {R"({"logit_bias": {"x": 1}})", "logit_bias: expected an object"},
      {R"({"logit_bias": {"1": "x"}})", "logit_bias: expected an object"}};
  for (const auto& [text, message] : cases)
    EXPECT_NE(refusal(text).find(message), std::string::npos) << text << ": " << refusal(text);
}

}  // namespace
}  // namespace di::sampling
