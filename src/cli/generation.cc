#include "cli/generation.h"

#include <chrono>

#include <fmt/format.h>

#include "base/error.h"
#include "text/detokenizer.h"

namespace di::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Token ids in, settled pieces of output out.
class OutputStream {
 public:
  OutputStream(
      const text::Tokenizer& tokenizer,
      const GenerationOptions& options,
      const OnOutput& on_output,
      GenerationResult& result
  )
      : detokenizer_(tokenizer),
        parser_(options.parser),
        parse_(options.parse),
        on_output_(on_output),
        result_(result) {}

  void push(int32_t id) { push_text(detokenizer_.push(id)); }

  void finish() {
    push_text(detokenizer_.flush());
    if (parse_) emit(parser_.finish());
  }

  bool done() const { return parse_ && parser_.done(); }
  bool hit_stop_string() const { return parser_.stop_string().has_value(); }

 private:
  void push_text(const std::string& text) {
    if (text.empty()) return;
    if (parse_) {
      emit(parser_.push(text));
    } else {
      emit({{text::OutputEvent::Kind::kContent, text}});
    }
  }

  void emit(const std::vector<text::OutputEvent>& events) {
    for (const text::OutputEvent& event : events) {
      result_.events.push_back(event);
      on_output_(event);
    }
  }

  text::Detokenizer detokenizer_;
  text::OutputParser parser_;
  bool parse_;
  const OnOutput& on_output_;
  GenerationResult& result_;
};

}  // namespace

const char* name_of(StopReason reason) {
  switch (reason) {
    case StopReason::kEos: return "eos";
    case StopReason::kStopString: return "stop_string";
    case StopReason::kToolCalls: return "tool_calls";
    case StopReason::kLength: return "length";
    case StopReason::kContext: return "context";
  }
  return "unknown";
}

std::string GenerationResult::text_of(text::OutputEvent::Kind kind) const {
  std::string text;
  for (const text::OutputEvent& event : events) {
    if (event.kind == kind) text += event.text;
  }
  return text;
}

GenerationResult generate(
    Runtime& runtime,
    model::Session& session,
    std::span<const int32_t> prompt,
    const GenerationOptions& options,
    const OnOutput& on_output
) {
  sampling::validate(options.sampling, runtime.config().vocab_size);
  if (prompt.empty()) throw Error(ErrorCode::kInvalidArgument, "the prompt has no tokens");
  const int64_t prompt_end = std::ssize(session.tokens()) + std::ssize(prompt);
  if (prompt_end >= runtime.context()) {
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
  GenerationResult result;
  result.prompt_tokens = std::ssize(prompt);
  const Clock::time_point start = Clock::now();
  std::vector<float> logits = runtime.prefill(session, prompt);
  result.prefill_seconds = seconds_since(start);

  sampling::Sampler sampler(
      options.sampling,
      static_cast<int32_t>(runtime.config().tokens.eos_token_id),
      options.sampling.seed.value_or(0),
      session.tokens(),
      {}
  );
  std::vector<double> scratch;
  OutputStream output(runtime.tokenizer(), options, on_output, result);
  const Clock::time_point decode_start = Clock::now();
  result.reason = StopReason::kLength;
  while (std::ssize(result.ids) < options.sampling.max_tokens) {
    const int64_t position = std::ssize(session.tokens()) - 1;
    const sampling::Draw draw = sampler.draw(logits, position, scratch);
    if (!draw.finite) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "the model's logits are not finite; the sequence cannot go on"
      );
    }
    const int32_t token = draw.token;
    if (sampler.is_end(token)) {
      result.reason = StopReason::kEos;
      break;
    }
    result.ids.push_back(token);
    output.push(token);
    if (output.done()) {
      result.reason = output.hit_stop_string() ? StopReason::kStopString : StopReason::kToolCalls;
      break;
    }
    if (std::ssize(session.tokens()) == runtime.context()) {
      result.reason = StopReason::kContext;
      break;
    }
    if (std::ssize(result.ids) < options.sampling.max_tokens) logits = session.feed({&token, 1});
  }
  output.finish();
  result.decode_seconds = seconds_since(decode_start);
  return result;
}

}  // namespace di::cli
