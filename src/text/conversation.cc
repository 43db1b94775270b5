// Reading conversations from JSON; see conversation.h.
#include "text/conversation.h"

#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace di::text {
namespace {

[[noreturn]] void invalid(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

/// The member, unless it is missing or null.
const Json* given(const Json& object, std::string_view key) {
  const Json* member = object.find(key);
  return member == nullptr || member->is_null() ? nullptr : member;
}

std::string text_or_empty(const Json& object, std::string_view key) {
  const Json* member = given(object, key);
  return member == nullptr ? std::string() : member->as_string();
}

bool flag(const Json& object, std::string_view key) {
  const Json* member = given(object, key);
  return member != nullptr && member->as_bool();
}

/// The items under `key`, each read by `read`; none when there is no such list.
template <typename Item>
std::vector<Item> items(const Json& object, std::string_view key, Item (*read)(const Json&)) {
  std::vector<Item> list;
  const Json* member = given(object, key);
  if (member == nullptr) return list;
  for (const Json& item : member->as_array())
    list.push_back(read(item));
  return list;
}

ToolDefinition tool_from_json(const Json& json) {
  ToolDefinition tool;
  tool.name = json.at("name").as_string();
  tool.description = text_or_empty(json, "description");
  if (const Json* parameters = json.find("parameters")) tool.parameters = *parameters;
  tool.defer_loading = flag(json, "defer_loading");
  return tool;
}

ToolCall call_from_json(const Json& json) {
  return {text_or_empty(json, "id"), json.at("name").as_string(), json.at("arguments").as_string()};
}

Role role_from_json(const Json& json) {
  static constexpr std::array<std::pair<std::string_view, Role>, 5> kRoles = {{
      {"system", Role::kSystem},
      {"user", Role::kUser},
      {"assistant", Role::kAssistant},
      {"tool", Role::kTool},
      {"latest_reminder", Role::kLatestReminder},
  }};
  for (const auto& [name, role] : kRoles) {
    if (json.as_string() == name) return role;
  }
  invalid(fmt::format(
      "invalid role {}; expected \"system\", \"user\", \"assistant\", \"tool\", or "
      "\"latest_reminder\"",
      json.dump()
  ));
}

Json checked_image(const Json& image) {
  const Json* detail = given(image, "detail");
  if (detail != nullptr && *detail != Json("low") && *detail != Json("high") &&
      *detail != Json("original") && *detail != Json("auto")) {
    invalid(fmt::format(
        "invalid detail {}; expected \"low\", \"high\", \"original\", or \"auto\"", detail->dump()
    ));
  }
  return image;
}

Message message_from_json(const Json& json) {
  Message message;
  message.role = role_from_json(json.at("role"));
  message.content = text_or_empty(json, "content");
  message.reasoning = text_or_empty(json, "reasoning_content");
  message.tool_calls = items(json, "tool_calls", call_from_json);
  message.prefix = flag(json, "prefix");
  message.tool_call_id = text_or_empty(json, "tool_call_id");
  message.tools = items(json, "tools", tool_from_json);
  message.images = items(json, "images", checked_image);
  return message;
}

ToolChoice choice_from_json(const Json& json) {
  if (json == Json("auto")) return ToolChoice::kAuto;
  if (json == Json("none")) return ToolChoice::kNone;
  if (json == Json("required")) return ToolChoice::kRequired;
  invalid(fmt::format(
      "invalid tool_choice {}; expected \"auto\", \"none\", or \"required\"", json.dump()
  ));
}

ResponseFormat format_from_json(const Json& json) {
  ResponseFormat format;
  if (const Json* kind = given(json, "response_format")) {
    if (*kind != Json("text") && *kind != Json("json_object")) {
      invalid(fmt::format(
          "invalid response_format {}; expected \"text\" or \"json_object\"", kind->dump()
      ));
    }
    format.json_object = *kind == Json("json_object");
  }
  if (const Json* schema = given(json, "response_schema")) format.schema = *schema;
  if (const Json* regex = given(json, "response_regex")) format.regex = regex->as_string();
  if (format.schema && format.regex) {
    invalid("response_schema and response_regex cannot be combined");
  }
  if (format.json_object && (format.schema || format.regex)) {
    invalid(
        "response_format \"json_object\" cannot be combined with response_schema or response_regex"
    );
  }
  return format;
}

}  // namespace

ReasoningEffort ReasoningEffort::from_json(const Json& json) {
  if (json.is_integer()) {
    const auto digits = json.integer_text().value_or("");
    for (int value = 1; value <= 100; ++value) {
      if (digits == std::to_string(value)) return {value};
    }
    invalid(fmt::format("invalid reasoning_effort {}; expected 1 to 100", digits));
  }
  if (json == Json("low")) return {50};
  if (json == Json("high") || json == Json("xhigh")) return {75};
  if (json == Json("max")) return {100};
  invalid(fmt::format(
      "invalid reasoning_effort {}; expected \"low\", \"high\", \"xhigh\", or \"max\"", json.dump()
  ));
}

Conversation Conversation::from_json(const Json& json) {
  Conversation conversation;
  if (const Json* thinking = given(json, "thinking_mode")) {
    conversation.thinking = thinking->as_bool();
  }
  if (const Json* effort = given(json, "reasoning_effort")) {
    conversation.effort = ReasoningEffort::from_json(*effort);
  }
  conversation.tools = items(json, "tools", tool_from_json);
  if (const Json* choice = given(json, "tool_choice")) {
    conversation.tool_choice = choice_from_json(*choice);
  }
  conversation.response_format = format_from_json(json);
  conversation.messages = items(json, "messages", message_from_json);
  return conversation;
}

}  // namespace di::text
