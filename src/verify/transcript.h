// The content of one response, whatever protocol it is told in.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/output_parser.h"

namespace di::verify {

/// One tool call; `arguments` is text, usually a JSON object.
struct TranscriptCall {
  std::string name;
  std::string arguments;
};

/// Reasoning, answer and calls.
struct Transcript {
  std::string reasoning;
  std::string content;
  std::vector<TranscriptCall> calls;

  /// For comparing and printing.
  Json to_json() const;
};

/// Appends what a parser gave.
void append(Transcript& transcript, const std::vector<text::OutputEvent>& events);

/// One of the three protocols of the stream fixtures and what a request in it decides about how
/// the output is told.
class Protocol {
 public:
  /// `name` is "chat_completions", "messages" or "responses". Throws Error{kInvalidFile}.
  Protocol(std::string_view name, const Json& request);

  /// What the request asks of the output parser.
  text::OutputParserOptions parser_options() const;

  /// The transcript of the whole response; calls as shown_whole() gives them.
  Transcript read_response(const Json& response) const;

  /// The transcript that the deltas of streamed events add up to; calls as shown_streamed() gives
  /// them.
  Transcript read_events(const Json& events) const;

  /// How the calls of a transcript stand in a whole response: Messages holds arguments parsed, and
  /// {} for what does not parse; Responses holds a custom tool's input alone.
  Transcript shown_whole(Transcript transcript) const;

  /// How the calls of a transcript stand in streamed deltas.
  Transcript shown_streamed(Transcript transcript) const;

  /// Why the response ended, as this protocol says it.
  Json read_finish(const Json& response) const;

  /// The same for a parser whose model ended for `reason`, or without telling one.
  Json shown_finish(const text::OutputParser& parser, std::optional<text::FinishReason> reason)
      const;

 private:
  enum class Kind { kChat, kMessages, kResponses };

  Kind kind_;
  const Json& request_;
  std::set<std::string> custom_tools_;
};

}  // namespace di::verify
