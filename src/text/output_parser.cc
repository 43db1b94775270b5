// The stages and their markers; see output_parser.h.
#include "text/output_parser.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "text/chat_templates.h"

namespace di::text {
namespace {

const std::string kEndThink(templates::kEndThink);
const std::string kOpenTag = "<" + std::string(templates::kDsml);
const std::string kCloseTag = "</" + std::string(templates::kDsml);

/// The text as the inside of a JSON string.
std::string json_escaped(std::string_view text) {
  const std::string quoted = Json(text).dump();
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

OutputParserOptions OutputParserOptions::for_conversation(const Conversation& conversation) {
  OutputParserOptions options;
  options.tool_calls = conversation.shows_tools();
  options.json_answer = conversation.response_format.json_object;
  const auto& messages = conversation.messages;
  if (options.tool_calls && conversation.tool_choice == ToolChoice::kRequired) {
    options.start = OutputStart::kToolCalls;
  } else if (!conversation.thinking) {
    options.start = OutputStart::kAnswer;
  } else if (!messages.empty() && messages.back().prefix) {
    options.start = messages.back().content.empty() ? OutputStart::kReasoningContinued
                                                    : OutputStart::kAnswerContinued;
  } else {
    options.start = OutputStart::kReasoning;
  }
  return options;
}

OutputParser::OutputParser(const OutputParserOptions& options) : options_(options) {
  for (const std::string& stop : options_.stop_strings) {
    if (stop.empty()) throw Error(ErrorCode::kInvalidArgument, "a stop string must not be empty");
  }
  // Of those that end together the longest counts, as in StopStrings.
  std::stable_sort(
      options_.stop_strings.begin(),
      options_.stop_strings.end(),
      [](const std::string& a, const std::string& b) { return a.size() > b.size(); }
  );
  const Stage answer = options_.json_answer ? Stage::kBeforeJson : Stage::kAnswer;
  switch (options_.start) {
    case OutputStart::kReasoning: enter(Stage::kReasoning, true); break;
    case OutputStart::kReasoningContinued: enter(Stage::kReasoning, false); break;
    case OutputStart::kAnswer: enter(answer, true); break;
    case OutputStart::kAnswerContinued: enter(answer, false); break;
    case OutputStart::kToolCalls: enter(Stage::kCalls, false); break;
  }
}

std::vector<OutputEvent> OutputParser::push(std::string_view text) {
  if (piece_starts_.back() < pending_.size()) piece_starts_.push_back(pending_.size());
  for (const char byte : text)
    read(byte);

  std::size_t held = 0;
  for (const Marker& marker : markers_)
    held = std::max(held, marker.matcher.held());
  // A piece of blanks is counted once, so it waits until all of it is settled.
  const bool blanks = stage_ == Stage::kBeforeJson || stage_ == Stage::kAfterJson;
  if (!blanks || held == 0) release(pending_.size() - held);
  return std::exchange(events_, {});
}

std::vector<OutputEvent> OutputParser::finish() {
  release(pending_.size());
  stage_ = Stage::kDone;
  markers_.clear();
  return std::exchange(events_, {});
}

/// Makes `stage` the current one, before its first byte.
void OutputParser::enter(Stage stage, bool leading) {
  stage_ = stage;
  leading_ = leading;
  pending_.clear();
  piece_starts_.assign(1, 0);
  markers_.clear();
  build_stage(stage);
}

void OutputParser::add_marker(std::string text, Stage next, Effect effect, bool eats_newlines) {
  markers_.push_back({MarkerMatcher(std::move(text), eats_newlines), next, effect});
}

void OutputParser::add_stop_strings() {
  for (const std::string& stop : options_.stop_strings) {
    add_marker(stop, Stage::kDone, Effect::kStop);
  }
}

/// What reasoning and answers have in common: calls may begin, leading newlines are skipped, and
/// </think> ends reasoning or is dropped.
void OutputParser::add_answer_markers(Stage stage) {
  const bool reasoning = stage == Stage::kReasoning;
  const Stage answer = options_.json_answer ? Stage::kBeforeJson : Stage::kAnswer;
  if (options_.tool_calls) add_marker(kOpenTag, Stage::kCalls, Effect::kNone, true);
  add_marker("\n", stage);
  markers_.back().leading_only = true;
  add_marker(kEndThink, reasoning ? answer : stage, Effect::kNone, reasoning);
}

void OutputParser::build_stage(Stage stage) {
  switch (stage) {
    case Stage::kReasoning: add_answer_markers(stage); break;
    case Stage::kAnswer:
      add_stop_strings();
      add_answer_markers(stage);
      break;
    case Stage::kBeforeJson:
      add_marker("```json\n", Stage::kJson);
      add_marker("```\n", Stage::kJson);
      add_marker("{", Stage::kJson, Effect::kKeepMarker);
      add_marker("[", Stage::kJson, Effect::kKeepMarker);
      add_answer_markers(stage);
      break;
    case Stage::kJson:
      add_stop_strings();
      add_marker("\n```", Stage::kAfterJson);
      break;
    case Stage::kAfterJson:
      if (options_.tool_calls) add_marker(kOpenTag, Stage::kCalls, Effect::kNone, true);
      break;
    case Stage::kCalls:
      add_marker("invoke name=\"", Stage::kCallName);
      add_marker(kCloseTag + "tool_calls>", Stage::kDone);
      add_marker(kCloseTag + " calls>", Stage::kDone);
      break;
    case Stage::kCallName: add_marker("\"", Stage::kArguments, Effect::kAnnounceCall); break;
    case Stage::kArguments:
      add_marker("parameter name=", Stage::kParameterName, Effect::kStartParameter);
      add_marker(kCloseTag, Stage::kCalls, Effect::kEndArguments);
      break;
    case Stage::kParameterName: add_marker(" ", Stage::kParameterType, Effect::kEndName); break;
    case Stage::kParameterType:
      add_marker("true\">", Stage::kStringValue, Effect::kQuote);
      add_marker("false\">", Stage::kRawValue);
      break;
    case Stage::kStringValue: add_marker(kCloseTag, Stage::kArguments, Effect::kQuote); break;
    case Stage::kRawValue: add_marker(kCloseTag, Stage::kArguments); break;
    case Stage::kDone: break;
  }
}

void OutputParser::read(char byte) {
  if (stage_ == Stage::kDone) return;
  pending_ += byte;
  std::size_t completed = markers_.size();
  for (std::size_t i = 0; i < markers_.size(); ++i) {
    if (markers_[i].leading_only && !leading_) continue;
    if (markers_[i].matcher.push(byte)) completed = std::min(completed, i);
  }
  if (completed < markers_.size()) {
    complete(completed);
  } else {
    leading_ = false;
  }
}

/// Releases the text before a complete marker and goes to the stage after it.
void OutputParser::complete(std::size_t index) {
  const Marker marker = markers_[index];
  release(pending_.size() - marker.matcher.held());
  apply(marker.effect, marker.matcher.marker());
  const bool into_answer = marker.next == Stage::kAnswer || marker.next == Stage::kBeforeJson;
  const bool leading = marker.leading_only || (into_answer && stage_ == Stage::kReasoning);
  enter(marker.next, leading);
  if (marker.effect == Effect::kKeepMarker) {
    for (const char byte : marker.matcher.marker())
      read(byte);
  }
}

void OutputParser::apply(Effect effect, const std::string& marker) {
  switch (effect) {
    case Effect::kNone:
    case Effect::kKeepMarker: break;
    case Effect::kStop: stop_string_ = marker; break;
    case Effect::kAnnounceCall:
      events_.push_back({OutputEvent::Kind::kToolCall, std::exchange(call_name_, {})});
      ++calls_;
      has_parameters_ = false;
      break;
    case Effect::kStartParameter:
      emit(OutputEvent::Kind::kArguments, has_parameters_ ? ", " : "{");
      has_parameters_ = true;
      break;
    case Effect::kEndName: emit(OutputEvent::Kind::kArguments, ": "); break;
    case Effect::kQuote: emit(OutputEvent::Kind::kArguments, "\""); break;
    case Effect::kEndArguments:
      emit(OutputEvent::Kind::kArguments, has_parameters_ ? "}" : "{}");
      break;
  }
}

/// Sends the first `size` pending bytes to where the stage's text goes.
void OutputParser::release(std::size_t size) {
  if (size == 0) return;
  const std::string_view text = std::string_view(pending_).substr(0, size);
  switch (stage_) {
    case Stage::kReasoning: emit(OutputEvent::Kind::kReasoning, text); break;
    case Stage::kAnswer:
    case Stage::kJson: emit(OutputEvent::Kind::kContent, text); break;
    case Stage::kBeforeJson:
    case Stage::kAfterJson: {
      const auto pieces = std::lower_bound(piece_starts_.begin(), piece_starts_.end(), size) -
                          piece_starts_.begin();
      emit(OutputEvent::Kind::kContent, std::string(static_cast<std::size_t>(pieces), ' '));
      break;
    }
    case Stage::kCallName: call_name_ += text; break;
    case Stage::kParameterName:
    case Stage::kRawValue: emit(OutputEvent::Kind::kArguments, text); break;
    case Stage::kStringValue: emit(OutputEvent::Kind::kArguments, json_escaped(text)); break;
    case Stage::kCalls:
    case Stage::kArguments:
    case Stage::kParameterType:
    case Stage::kDone: break;
  }
  pending_.erase(0, size);
  piece_starts_.assign(1, 0);
}

void OutputParser::emit(OutputEvent::Kind kind, std::string_view text) {
  if (events_.empty() || events_.back().kind != kind) events_.push_back({kind, {}});
  events_.back().text += text;
}

}  // namespace di::text
