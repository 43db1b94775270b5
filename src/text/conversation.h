// A conversation in the engine's neutral form: what a request becomes before it is encoded as a
// prompt, whatever protocol it came in.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace di::text {

/// A function that the model may call.
struct ToolDefinition {
  std::string name;
  std::string description;
  Json parameters;             ///< JSON Schema; any JSON value is shown as it is
  bool defer_loading = false;  ///< known, but not listed in the system prompt
};

/// A call that an assistant message made.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  ///< raw text, usually a JSON object
};

enum class Role { kSystem, kUser, kAssistant, kTool, kLatestReminder };

/// One message. Fields that a role does not have stay empty.
struct Message {
  Role role = Role::kUser;
  std::string content;
  std::string reasoning;              ///< assistant
  std::vector<ToolCall> tool_calls;   ///< assistant
  bool prefix = false;                ///< assistant: the model goes on with this message
  std::string tool_call_id;           ///< tool
  std::vector<ToolDefinition> tools;  ///< system: tools that appear from here on
  std::vector<Json> images;           ///< one for each of the first placeholders in `content`
};

enum class ToolChoice { kAuto, kNone, kRequired };

/// How hard to think, 1 to 100. The names of the protocols stand for numbers.
struct ReasoningEffort {
  int value = 75;

  /// The effort that a JSON value asks for: "low" 50, "high" and "xhigh" 75, "max" 100, or an
  /// integer from 1 to 100. Throws Error{kInvalidArgument}.
  static ReasoningEffort from_json(const Json& json);
};

/// What the answer must look like. At most one of the members is set.
struct ResponseFormat {
  bool json_object = false;
  std::optional<Json> schema;
  std::optional<std::string> regex;
};

/// Everything that decides the prompt.
struct Conversation {
  bool thinking = true;
  ReasoningEffort effort;
  std::vector<ToolDefinition> tools;
  ToolChoice tool_choice = ToolChoice::kAuto;
  ResponseFormat response_format;
  std::vector<Message> messages;

  /// Whether the tools are shown to the model and their calls are looked for in its output.
  bool shows_tools() const { return !tools.empty() && tool_choice != ToolChoice::kNone; }

  /// Reads the neutral form: thinking_mode, reasoning_effort, tools, tool_choice, response_format,
  /// response_schema, response_regex, messages. Throws Error{kInvalidArgument} or, for a value of
  /// the wrong type, Error{kInvalidFile}.
  static Conversation from_json(const Json& json);
};

}  // namespace di::text
