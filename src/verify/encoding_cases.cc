// Rendering and encoding conversations; see encoding_cases.h.
#include "verify/encoding_cases.h"

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/chat_encoding.h"

namespace di::verify {
namespace {

using text::ChatVersion;
using text::Conversation;

Json ranges_of(const text::RenderedPrompt& prompt) {
  Json::Array list;
  for (const auto& range : prompt.special_ranges) {
    list.emplace_back(Json::Array{
        static_cast<int64_t>(range.begin), static_cast<int64_t>(range.end)});
  }
  return list;
}

CaseOutcome check_prompt(
    const Json& expected, const text::RenderedPrompt& prompt, const text::Tokenizer& tokenizer
) {
  const Json* images = expected.find("images");
  return first_failure(
      [&] { return compare("prompt", expected.at("prompt"), prompt.text); },
      [&] { return compare("special_ranges", expected.at("special_ranges"), ranges_of(prompt)); },
      [&] { return compare("images", images ? *images : Json(Json::Array{}), prompt.images); },
      [&] {
        const auto ids = text::encode(prompt, tokenizer);
        return compare("token_ids", expected.at("token_ids"), json_of(ids));
      }
  );
}

CaseOutcome check_error(const std::string& expected, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return compare("error", expected, error.what());
  }
  return CaseOutcome::failed("error " + expected, "no error");
}

CaseOutcome run_conversation(const Json& test, const ChatTokenizers& tokenizers) {
  const ChatVersion version = text::chat_version_from(test.at("version").as_string());
  const text::Tokenizer& tokenizer = version == ChatVersion::kV4 ? tokenizers.v4 : tokenizers.v41;
  const Json& expected = test.at("expect");
  if (const Json* error = expected.find("error")) {
    return check_error(error->at("message").as_string(), [&] {
      text::render(Conversation::from_json(test.at("conversation")), version);
    });
  }
  const auto prompt = text::render(Conversation::from_json(test.at("conversation")), version);
  return check_prompt(expected, prompt, tokenizer);
}

/// The first quoted word of an error message: the value that it complains about.
std::string quoted_value(const std::string& message) {
  const auto begin = message.find('"');
  const auto end = message.find('"', begin + 1);
  return end == std::string::npos ? std::string() : message.substr(begin + 1, end - begin - 1);
}

Json conversation_with(std::string key, Json value) {
  return Json::Object{{std::move(key), std::move(value)}};
}

Conversation with_one_image() {
  const std::string mark(text::default_image_mark(ChatVersion::kV4));
  return Conversation::from_json(conversation_with(
      "messages",
      Json::Array{Json::Object{
          {"role", "user"}, {"content", mark}, {"images", Json::Array{Json::Object{}}}}}
  ));
}

/// The error cases state only a name and a message; what provokes the message stands here.
CaseOutcome run_named_error(const Json& test, const ChatTokenizers& tokenizers) {
  const std::string& message = test.at("message").as_string();
  const std::string value = quoted_value(message);
  const auto parse = [](std::string key, Json member) {
    Conversation::from_json(conversation_with(std::move(key), std::move(member)));
  };
  const std::map<std::string_view, std::function<void()>> actions = {
      {"error/empty-image-token", [&] { text::render({}, ChatVersion::kV41, ""); }},
      {"error/bad-effort", [&] { parse("reasoning_effort", value); }},
      {"error/bad-tool-choice", [&] { parse("tool_choice", value); }},
      {"error/bad-format", [&] { parse("response_format", value); }},
      {"error/schema-and-regex",
       [&] {
         Conversation::from_json(Json::Object{
             {"response_schema", Json::Object{}}, {"response_regex", "a"}});
       }},
      {"error/bad-detail",
       [&] {
         const Json image = conversation_with("detail", value);
         parse(
             "messages", Json::Array{Json::Object{{"role", "user"}, {"images", Json::Array{image}}}}
         );
       }},
      {"error/token-missing-in-vocabulary",
       [&] {
         text::encode(text::render(with_one_image(), ChatVersion::kV41, value), tokenizers.v41);
       }},
      {"error/v41-on-v4-tokenizer",
       [&] {
         Conversation conversation;
         conversation.messages.emplace_back();
         text::encode(text::render(conversation, ChatVersion::kV41), tokenizers.v4);
       }},
  };
  const auto action = actions.find(test.at("id").as_string());
  if (action == actions.end()) return CaseOutcome::skipped("no way to provoke this error");
  return check_error(message, action->second);
}

}  // namespace

CaseOutcome run_encoding_case(const Json& test, const ChatTokenizers& tokenizers) {
  if (test.find("conversation") == nullptr) return run_named_error(test, tokenizers);
  return run_conversation(test, tokenizers);
}

}  // namespace di::verify
