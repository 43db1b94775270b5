// What the tests of this room share: the default model, requests of all kinds, and how to run them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"

namespace di::engine::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// The backend under test: cpu, or what DI_TEST_BACKEND names; cuda needs a machine with a device.
inline std::string backend() {
  const char* named = std::getenv("DI_TEST_BACKEND");
  return named == nullptr ? "cpu" : named;
}

/// The arithmetic of the cuda backend under test: fast, or what DI_TEST_CUDA_ARITHMETIC names.
inline std::string cuda_arithmetic() {
  const char* named = std::getenv("DI_TEST_CUDA_ARITHMETIC");
  return named == nullptr ? "fast" : named;
}

/// Options for the default model at a size that loads and runs in moments.
inline EngineOptions small_options() {
  EngineOptions options;
  options.model = DI_SEEDLING;
  options.backend = backend();
  options.cuda_arithmetic = cuda_arithmetic();
  options.context = 512;
  options.max_num_seqs = 40;
  options.threads = 1;
  options.check_integrity = true;
  options.draft_costs = "none";
  return options;
}

/// All news of one request, put together.
struct Transcript {
  struct Choice {
    std::vector<TokenOutput> tokens;
    std::string text;
    std::optional<FinishReason> reason;
    std::string message;

    std::vector<int32_t> ids() const {
      std::vector<int32_t> ids;
      for (const TokenOutput& token : tokens)
        ids.push_back(token.token);
      return ids;
    }
  };
  std::map<int64_t, Choice> choices;
  std::vector<TokenOutput> prompt_logprobs;
  int64_t num_finished = 0;

  const Choice& only() const { return choices.at(0); }
};

/// Transcripts by request id.
using Transcripts = std::map<std::string, Transcript>;

inline void append(Transcripts& transcripts, std::vector<Output> outputs) {
  for (Output& output : outputs) {
    Transcript& transcript = transcripts[output.request_id];
    EXPECT_EQ(transcript.num_finished, 0) << output.request_id << ": news after the end";
    transcript.num_finished += output.finished ? 1 : 0;
    for (TokenOutput& token : output.prompt_logprobs)
      transcript.prompt_logprobs.push_back(std::move(token));
    for (ChoiceOutput& news : output.choices) {
      Transcript::Choice& choice = transcript.choices[news.index];
      EXPECT_FALSE(choice.reason) << output.request_id << ": a choice goes on after its end";
      for (TokenOutput& token : news.tokens)
        choice.tokens.push_back(std::move(token));
      choice.text += news.text;
      choice.reason = news.finish_reason;
      choice.message = news.message;
      EXPECT_EQ(news.num_output_tokens, std::ssize(choice.tokens));
    }
  }
}

/// Steps until nothing is left to do.
inline void drain(Engine& engine, Transcripts& transcripts) {
  for (int64_t steps = 0; engine.has_work(); ++steps) {
    ASSERT_LT(steps, 100000) << "no end in sight";
    append(transcripts, engine.step());
  }
}

/// Adds all requests at once and runs them to their ends.
inline Transcripts run(Engine& engine, const std::vector<Request>& requests) {
  Transcripts transcripts;
  for (const Request& request : requests) {
    const auto refusal = engine.add(request);
    EXPECT_FALSE(refusal) << request.id << ": " << (refusal ? refusal->message : "");
  }
  drain(engine, transcripts);
  for (const Request& request : requests)
    EXPECT_EQ(transcripts[request.id].num_finished, 1) << request.id;
  return transcripts;
}

/// Adds one request a step, each before all earlier ones: in a tight pool newcomers take the memory
/// of those that run.
inline Transcripts run_pushing_in(Engine& engine, std::vector<Request> requests) {
  Transcripts transcripts;
  int priority = 0;
  for (Request& request : requests) {
    request.priority = ++priority;
    const auto refusal = engine.add(request);
    EXPECT_FALSE(refusal) << request.id << ": " << (refusal ? refusal->message : "");
    append(transcripts, engine.step());
  }
  drain(engine, transcripts);
  return transcripts;
}

inline bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

inline void expect_same_tokens(
    const std::vector<TokenOutput>& a, const std::vector<TokenOutput>& b, const std::string& what
) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].token, b[i].token) << what << ", token " << i;
    ASSERT_TRUE(same_bits(a[i].logprob, b[i].logprob)) << what << ", logprob of token " << i;
    ASSERT_EQ(a[i].top.size(), b[i].top.size()) << what;
    for (std::size_t t = 0; t < a[i].top.size(); ++t) {
      ASSERT_EQ(a[i].top[t].token, b[i].top[t].token) << what;
      ASSERT_TRUE(same_bits(a[i].top[t].logprob, b[i].top[t].logprob)) << what;
    }
  }
}

/// Bit for bit: tokens, logprobs, text and ends.
inline void expect_same(const Transcript& a, const Transcript& b, const std::string& what) {
  ASSERT_EQ(a.choices.size(), b.choices.size()) << what;
  expect_same_tokens(a.prompt_logprobs, b.prompt_logprobs, what + ", prompt");
  for (const auto& [index, choice] : a.choices) {
    const Transcript::Choice& other = b.choices.at(index);
    expect_same_tokens(choice.tokens, other.tokens, what);
    ASSERT_EQ(choice.text, other.text) << what;
    ASSERT_EQ(choice.reason, other.reason) << what;
  }
}

/// A prompt of `length` tokens that no other seed has.
inline std::vector<int32_t> random_prompt(const Engine& engine, std::size_t length, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> prompt(length);
  for (int32_t& token : prompt)
    token =
        static_cast<int32_t>(3 + random() % static_cast<uint32_t>(engine.config().vocab_size - 3));
  return prompt;
}

/// Requests of mixed lengths and parameters: greedy and seeded, with and without penalties, bias,
/// logprobs and stops.
inline std::vector<Request> mixed_requests(
    const Engine& engine, int64_t count, int64_t max_tokens
) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i) {
    Request request;
    request.id = "request " + std::to_string(i);
    const std::size_t length = i % 11 == 4 ? 150 : 3 + static_cast<std::size_t>(i * 37 % 41);
    request.prompt_token_ids = random_prompt(engine, length, static_cast<uint32_t>(i));
    sampling::SamplingParams& sampling = request.sampling;
    sampling.max_tokens = max_tokens - i % 5;
    sampling.seed = 1000 + static_cast<uint64_t>(i);
    sampling.logprobs = true;
    sampling.temperature = i % 3 == 0 ? 0 : 0.5 + 0.25 * static_cast<double>(i % 4);
    if (i % 4 == 1) sampling.top_p = 0.9;
    if (i % 5 == 2) sampling.top_k = 20;
    if (i % 7 == 3) sampling.repetition_penalty = 1.2;
    if (i % 7 == 4) sampling.frequency_penalty = 0.3;
    if (i % 6 == 5) sampling.top_logprobs = 3;
    if (i % 8 == 6) sampling.ignore_eos = true;
    if (i % 9 == 7) sampling.n = 2;
    if (i % 10 == 8) sampling.prompt_logprobs = true;
    requests.push_back(std::move(request));
  }
  return requests;
}

/// mixed_requests(), each by itself in an engine of its own: synchronous, whole prompts, one
/// thread, all the memory it wants, no drafts.
inline Transcripts run_each_alone(int64_t count, int64_t max_tokens) {
  EngineOptions options = small_options();
  options.async_scheduling = false;
  options.max_num_seqs = 1;
  const auto engine = Engine::open(options);
  Transcripts all;
  for (const Request& request : mixed_requests(*engine, count, max_tokens))
    all.merge(run(*engine, {request}));
  return all;
}

}  // namespace di::engine::testing
