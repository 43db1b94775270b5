#include "cli/generation.h"

#include <chrono>

#include <fmt/format.h>

#include "base/error.h"
#include "sampling/sampler.h"
#include "text/detokenizer.h"

namespace di::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void check_room(const Runtime& runtime, int64_t prompt_end) {
  if (prompt_end < runtime.context()) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "the prompt has {} tokens and leaves no room for an answer in a context of {}; raise "
          "--context",
          prompt_end,
          runtime.context()
      )
  );
}

/// Draws until something ends the answer; returns what did.
const char* decode(
    const Runtime& runtime,
    model::Session& session,
    std::vector<float> logits,
    const sampling::SamplingParams& sampling,
    std::vector<engine::TokenOutput>& tokens,
    AnswerReader& reader
) {
  sampling::Sampler sampler(
      sampling,
      static_cast<int32_t>(runtime.config().tokens.eos_token_id),
      sampling.seed.value_or(0),
      session.tokens(),
      {}
  );
  text::Detokenizer detokenizer(runtime.tokenizer());
  std::vector<double> scratch;
  while (true) {
    const sampling::Draw draw = sampler.draw(logits, std::ssize(session.tokens()) - 1, scratch);
    if (!draw.finite) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "the model's logits are not finite, or nothing is left to draw; the sequence cannot go on"
      );
    }
    if (sampler.is_end(draw.token)) {
      reader.push(detokenizer.flush());
      return "eos";
    }
    tokens.push_back({draw.token});
    reader.push(detokenizer.push(draw.token));
    if (reader.done()) return reader.reason();
    const bool full = std::ssize(session.tokens()) == runtime.context();
    if (full || std::ssize(tokens) == sampling.max_tokens) {
      reader.push(detokenizer.flush());
      return full ? "context" : "length";
    }
    logits = session.feed({&draw.token, 1});
  }
}

}  // namespace

Answer generate(
    Runtime& runtime,
    model::Session& session,
    std::span<const int32_t> prompt,
    const sampling::SamplingParams& sampling,
    AnswerReader& reader,
    AnswerTimes& times
) {
  sampling::validate(sampling, runtime.config().vocab_size);
  if (prompt.empty()) throw Error(ErrorCode::kInvalidArgument, "the prompt has no tokens");
  check_room(runtime, std::ssize(session.tokens()) + std::ssize(prompt));
  times.prompt_tokens = std::ssize(prompt);
  const Clock::time_point start = Clock::now();
  std::vector<float> logits = runtime.prefill(session, prompt);
  times.prefill_seconds = seconds_since(start);

  Answer answer;
  const Clock::time_point decode_start = Clock::now();
  answer.reason = decode(runtime, session, std::move(logits), sampling, answer.tokens, reader);
  reader.finish();
  answer.events = reader.events();
  times.decode_seconds = seconds_since(decode_start);
  return answer;
}

}  // namespace di::cli
