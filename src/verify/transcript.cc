// Reading responses of three protocols; see transcript.h.
#include "verify/transcript.h"

#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace di::verify {
namespace {

using text::FinishReason;
using text::OutputEvent;

/// The value at a path of keys, or null where the path breaks off.
const Json& at_path(const Json& json, std::initializer_list<std::string_view> keys) {
  static const Json kNull;
  const Json* value = &json;
  for (const std::string_view key : keys) {
    value = value->find(key);
    if (value == nullptr) return kNull;
  }
  return *value;
}

std::string text_at(const Json& json, std::initializer_list<std::string_view> keys) {
  const Json& value = at_path(json, keys);
  return value.is_string() ? value.as_string() : std::string();
}

const Json::Array& list_at(const Json& json, std::initializer_list<std::string_view> keys) {
  static const Json::Array kEmpty;
  const Json& value = at_path(json, keys);
  return value.is_array() ? value.as_array() : kEmpty;
}

/// The text as a JSON object, or null.
Json parsed_object(const std::string& text) {
  try {
    Json json = Json::parse(text, "arguments");
    if (json.is_object()) return json;
  } catch (const Error&) {
    // What a model writes need not be JSON.
  }
  return {};
}

void read_chat_call(Transcript& transcript, const Json& call) {
  const std::string name = text_at(call, {"function", "name"});
  if (!name.empty() || call.find("id") != nullptr) transcript.calls.push_back({name, {}});
  if (transcript.calls.empty()) return;
  transcript.calls.back().arguments += text_at(call, {"function", "arguments"});
}

/// A message, or the delta of one.
void read_chat_message(Transcript& transcript, const Json& message) {
  transcript.reasoning += text_at(message, {"reasoning_content"});
  transcript.content += text_at(message, {"content"});
  for (const Json& call : list_at(message, {"tool_calls"}))
    read_chat_call(transcript, call);
}

void read_messages_event(Transcript& transcript, const Json& event) {
  const Json& block = at_path(event, {"content_block"});
  if (at_path(block, {"type"}) == Json("tool_use")) {
    transcript.calls.push_back({text_at(block, {"name"}), {}});
  }
  transcript.reasoning += text_at(event, {"delta", "thinking"});
  transcript.content += text_at(event, {"delta", "text"});
  const std::string arguments = text_at(event, {"delta", "partial_json"});
  if (!arguments.empty()) transcript.calls.back().arguments += arguments;
}

void read_messages_block(Transcript& transcript, const Json& block) {
  transcript.reasoning += text_at(block, {"thinking"});
  transcript.content += text_at(block, {"text"});
  if (block.at("type") == Json("tool_use")) {
    transcript.calls.push_back({text_at(block, {"name"}), block.at("input").dump()});
  }
}

std::string call_name(const Json& item) {
  const std::string space = text_at(item, {"namespace"});
  return (space.empty() ? "" : space + "::") + text_at(item, {"name"});
}

bool is_call(const Json& item) {
  const std::string type = text_at(item, {"type"});
  return type == "function_call" || type == "custom_tool_call";
}

void read_responses_event(Transcript& transcript, const Json& event) {
  const std::string type = text_at(event, {"type"});
  const std::string delta = text_at(event, {"delta"});
  if (type == "response.output_item.added" && is_call(event.at("item"))) {
    transcript.calls.push_back({call_name(event.at("item")), {}});
  } else if (type == "response.reasoning_text.delta") {
    transcript.reasoning += delta;
  } else if (type == "response.output_text.delta") {
    transcript.content += delta;
  } else if (!delta.empty()) {
    transcript.calls.back().arguments += delta;
  }
}

void read_responses_item(Transcript& transcript, const Json& item) {
  const bool reasoning = text_at(item, {"type"}) == "reasoning";
  for (const Json& part : list_at(item, {"content"})) {
    (reasoning ? transcript.reasoning : transcript.content) += text_at(part, {"text"});
  }
  if (is_call(item)) {
    transcript.calls.push_back(
        {call_name(item), text_at(item, {"arguments"}) + text_at(item, {"input"})}
    );
  }
}

}  // namespace

Json Transcript::to_json() const {
  Json::Array list;
  for (const TranscriptCall& call : calls)
    list.emplace_back(Json::Array{call.name, call.arguments});
  return Json::Object{{"reasoning", reasoning}, {"content", content}, {"calls", list}};
}

void append(Transcript& transcript, const std::vector<OutputEvent>& events) {
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case OutputEvent::Kind::kReasoning: transcript.reasoning += event.text; break;
      case OutputEvent::Kind::kContent: transcript.content += event.text; break;
      case OutputEvent::Kind::kToolCall: transcript.calls.push_back({event.text, {}}); break;
      case OutputEvent::Kind::kArguments: transcript.calls.back().arguments += event.text; break;
    }
  }
}

Protocol::Protocol(std::string_view name, const Json& request) : request_(request) {
  if (name == "chat_completions") {
    kind_ = Kind::kChat;
  } else if (name == "messages") {
    kind_ = Kind::kMessages;
  } else if (name == "responses") {
    kind_ = Kind::kResponses;
  } else {
    throw Error(ErrorCode::kInvalidFile, fmt::format("unknown protocol \"{}\"", name));
  }
  for (const Json& tool : list_at(request, {"tools"})) {
    if (text_at(tool, {"type"}) == "custom") custom_tools_.insert(text_at(tool, {"name"}));
  }
}

text::OutputParserOptions Protocol::parser_options() const {
  text::Conversation conversation;
  conversation.thinking = text_at(request_, {"thinking", "type"}) != "disabled" &&
                          text_at(request_, {"reasoning", "effort"}) != "none" &&
                          text_at(request_, {"reasoning_effort"}) != "none";
  conversation.tools.resize(list_at(request_, {"tools"}).size());

  // A choice is a word, or an object that names a tool and so requires a call.
  const Json& choice = at_path(request_, {"tool_choice"});
  const std::string word = choice.is_string() ? choice.as_string() : text_at(choice, {"type"});
  if (word == "none") conversation.tool_choice = text::ToolChoice::kNone;
  if (word == "required" || word == "function" || word == "tool") {
    conversation.tool_choice = text::ToolChoice::kRequired;
  }

  for (const std::string& format :
       {text_at(request_, {"response_format", "type"}),
        text_at(request_, {"text", "format", "type"})}) {
    if (format == "json_object") conversation.response_format.json_object = true;
  }
  const auto& messages = list_at(request_, {"messages"});
  if (!messages.empty() && at_path(messages.back(), {"prefix"}) == Json(true)) {
    text::Message prefix;
    prefix.prefix = true;
    prefix.content = text_at(messages.back(), {"content"});
    conversation.messages.push_back(prefix);
  }

  auto options = text::OutputParserOptions::for_conversation(conversation);
  for (const char* key : {"stop", "stop_sequences"}) {
    if (const auto one = text_at(request_, {key}); !one.empty()) options.stop_strings = {one};
    for (const Json& stop : list_at(request_, {key})) {
      options.stop_strings.push_back(stop.as_string());
    }
  }
  return options;
}

Transcript Protocol::read_response(const Json& response) const {
  Transcript transcript;
  switch (kind_) {
    case Kind::kChat:
      for (const Json& choice : list_at(response, {"choices"})) {
        read_chat_message(transcript, choice.at("message"));
      }
      break;
    case Kind::kMessages:
      for (const Json& block : list_at(response, {"content"})) {
        read_messages_block(transcript, block);
      }
      break;
    case Kind::kResponses:
      for (const Json& item : list_at(response, {"output"}))
        read_responses_item(transcript, item);
      break;
  }
  return transcript;
}

Transcript Protocol::read_events(const Json& events) const {
  Transcript transcript;
  for (const Json& event : events.as_array()) {
    switch (kind_) {
      case Kind::kChat:
        for (const Json& choice : list_at(event, {"choices"})) {
          read_chat_message(transcript, choice.at("delta"));
        }
        break;
      case Kind::kMessages: read_messages_event(transcript, event.at("data")); break;
      case Kind::kResponses: read_responses_event(transcript, event.at("data")); break;
    }
  }
  return transcript;
}

Transcript Protocol::shown_whole(Transcript transcript) const {
  if (kind_ != Kind::kMessages) return shown_streamed(std::move(transcript));
  for (TranscriptCall& call : transcript.calls) {
    const Json arguments = parsed_object(call.arguments);
    call.arguments = arguments.is_null() ? "{}" : arguments.dump();
  }
  return transcript;
}

Transcript Protocol::shown_streamed(Transcript transcript) const {
  for (TranscriptCall& call : transcript.calls) {
    if (kind_ != Kind::kResponses || !custom_tools_.contains(call.name)) continue;
    const Json arguments = parsed_object(call.arguments);
    const Json* input = arguments.find("input");
    if (input != nullptr && input->is_string()) call.arguments = input->as_string();
  }
  return transcript;
}

Json Protocol::read_finish(const Json& response) const {
  switch (kind_) {
    case Kind::kChat: return at_path(response.at("choices").as_array().at(0), {"finish_reason"});
    case Kind::kMessages:
      return Json::Array{at_path(response, {"stop_reason"}), at_path(response, {"stop_sequence"})};
    case Kind::kResponses:
      return Json::Array{
          at_path(response, {"status"}), at_path(response, {"incomplete_details", "reason"})};
  }
  return {};
}

Json Protocol::shown_finish(const text::OutputParser& parser, std::optional<FinishReason> reason)
    const {
  const auto index =
      static_cast<std::size_t>(reason ? parser.finish_reason(*reason) : FinishReason::kStop);
  static constexpr const char* kChatNames[] = {"stop", "length", "content_filter", "tool_calls"};
  static constexpr const char* kMessagesNames[] = {"end_turn", "max_tokens", "refusal", "tool_use"};
  switch (kind_) {
    case Kind::kChat: return kChatNames[index];
    case Kind::kMessages:
      if (parser.stop_string()) return Json::Array{"stop_sequence", *parser.stop_string()};
      return Json::Array{kMessagesNames[index], Json()};
    case Kind::kResponses:
      if (reason == FinishReason::kLength) return Json::Array{"incomplete", "max_output_tokens"};
      if (reason == FinishReason::kContentFilter)
        return Json::Array{"incomplete", "content_filter"};
      return Json::Array{"completed", Json()};
  }
  return {};
}

}  // namespace di::verify
