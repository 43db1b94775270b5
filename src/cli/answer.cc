#include "cli/answer.h"

#include <utility>

namespace di::cli {
namespace {

using Kind = text::OutputEvent::Kind;

Json calls_json(const std::vector<text::OutputEvent>& events) {
  Json::Array calls;
  for (const text::OutputEvent& event : events) {
    if (event.kind == Kind::kToolCall) {
      calls.push_back(Json(Json::Object{{"name", Json(event.text)}, {"arguments", Json("")}}));
    } else if (event.kind == Kind::kArguments) {
      Json& arguments = calls.back().as_object()[1].second;
      arguments = Json(arguments.as_string() + event.text);
    }
  }
  return calls;
}

Json::Object token_json(int32_t token, float logprob, const text::Tokenizer& tokenizer) {
  const int32_t ids[] = {token};
  return {
      {"id", int64_t{token}},
      {"token", tokenizer.decode(ids)},
      {"logprob", static_cast<double>(logprob)}};
}

}  // namespace

AnswerReader::AnswerReader(const AnswerOptions& options, OnEvent on_event)
    : parse_(options.parse), parser_(options.parser), on_event_(std::move(on_event)) {}

void AnswerReader::push(std::string_view text) {
  if (text.empty()) return;
  if (parse_) {
    emit(parser_.push(text));
  } else {
    emit({{Kind::kContent, std::string(text)}});
  }
}

void AnswerReader::finish() {
  if (parse_) emit(parser_.finish());
}

void AnswerReader::emit(const std::vector<text::OutputEvent>& events) {
  for (const text::OutputEvent& event : events) {
    events_.push_back(event);
    if (on_event_) on_event_(event);
  }
}

std::string Answer::text_of(Kind kind) const {
  std::string text;
  for (const text::OutputEvent& event : events) {
    if (event.kind == kind) text += event.text;
  }
  return text;
}

Json answer_json(const Answer& answer) {
  Json::Array ids;
  for (const engine::TokenOutput& token : answer.tokens)
    ids.emplace_back(int64_t{token.token});
  return Json::Object{
      {"text", answer.text_of(Kind::kContent)},
      {"reasoning", answer.text_of(Kind::kReasoning)},
      {"tool_calls", calls_json(answer.events)},
      {"ids", std::move(ids)},
      {"stop_reason", answer.reason},
      {"completion_tokens", std::ssize(answer.tokens)}};
}

Json logprobs_json(
    const std::vector<engine::TokenOutput>& tokens, const text::Tokenizer& tokenizer
) {
  Json::Array entries;
  for (const engine::TokenOutput& token : tokens) {
    Json::Object entry = token_json(token.token, token.logprob, tokenizer);
    Json::Array top;
    for (const sampling::TokenLogprob& other : token.top)
      top.emplace_back(token_json(other.token, other.logprob, tokenizer));
    entry.emplace_back("top", std::move(top));
    entries.emplace_back(std::move(entry));
  }
  return entries;
}

}  // namespace di::cli
