// An answer as it comes: text in, settled pieces of reasoning, answer and tool calls out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/request.h"
#include "text/output_parser.h"
#include "text/tokenizer.h"

namespace di::cli {

/// How to read an answer.
struct AnswerOptions {
  bool parse = true;  ///< split into reasoning, answer and calls; otherwise plain text
  text::OutputParserOptions parser = {};
};

/// Called with each piece of output as soon as it is settled.
using OnEvent = std::function<void(const text::OutputEvent&)>;

/// Reads the text of one answer.
class AnswerReader {
 public:
  /// `on_event` may be empty.
  AnswerReader(const AnswerOptions& options, OnEvent on_event);

  void push(std::string_view text);
  /// Ends the answer and settles what was held back.
  void finish();

  /// Whether nothing further will come out, whatever text follows.
  bool done() const { return parse_ && parser_.done(); }
  /// "stop_string" or "tool_calls": why, once it is done.
  const char* reason() const { return parser_.stop_string() ? "stop_string" : "tool_calls"; }

  const std::vector<text::OutputEvent>& events() const { return events_; }

 private:
  void emit(const std::vector<text::OutputEvent>& events);

  bool parse_;
  text::OutputParser parser_;
  OnEvent on_event_;
  std::vector<text::OutputEvent> events_;
};

/// A whole answer.
struct Answer {
  std::vector<engine::TokenOutput> tokens = {};  ///< without an end token that ended it
  std::vector<text::OutputEvent> events = {};
  std::string reason = {};   ///< "eos", "stop_token", "stop_string", "tool_calls", "length",
                             ///< "context", "abort", "timeout" or "failed"
  std::string message = {};  ///< of a failure

  std::string text_of(text::OutputEvent::Kind kind) const;
};

/// How long a prompt and its answers took.
struct AnswerTimes {
  int64_t prompt_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;  ///< from the first token to the last

  double tokens_per_second(int64_t num_tokens) const {
    return decode_seconds > 0 ? static_cast<double>(num_tokens) / decode_seconds : 0;
  }
};

/// An object with text, reasoning, tool_calls, ids, stop_reason and completion_tokens.
Json answer_json(const Answer& answer);

/// An array with id, token (its text), logprob and top of each token.
Json logprobs_json(
    const std::vector<engine::TokenOutput>& tokens, const text::Tokenizer& tokenizer
);

}  // namespace di::cli
