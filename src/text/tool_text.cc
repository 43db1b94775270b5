// Tools and calls as text; see tool_text.h.
#include "text/tool_text.h"

#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "text/chat_templates.h"

namespace di::text {
namespace {

/// The arguments as an object, unless they are anything else.
std::optional<Json> parsed_arguments(const std::string& arguments) {
  try {
    Json json = Json::parse(arguments, "arguments");
    if (json.is_object()) return json;
  } catch (const Error&) {
    // A model may have written anything; the caller shows it as it stands.
  }
  return std::nullopt;
}

void open_tag(PromptText& prompt, const ToolTags& tags, std::string_view name) {
  prompt.plain("<");
  prompt.mark(templates::kDsml);
  prompt.plain(tags.space);
  prompt.plain(name);
}

void close_tag(PromptText& prompt, const ToolTags& tags, std::string_view name) {
  prompt.plain("</");
  prompt.mark(templates::kDsml);
  prompt.plain(tags.space);
  prompt.plain(name);
  prompt.plain(">");
}

void append_parameter(
    PromptText& prompt, std::string_view name, const Json& value, const ToolTags& tags
) {
  open_tag(prompt, tags, "parameter");
  prompt.plain(fmt::format(" name=\"{}\" string=\"{}\">", name, value.is_string()));
  prompt.plain(value.is_string() ? value.as_string() : value.dump(tags.exponent_digits));
  close_tag(prompt, tags, "parameter");
}

void append_call(PromptText& prompt, const ToolCall& call, const ToolTags& tags) {
  open_tag(prompt, tags, "invoke");
  prompt.plain(fmt::format(" name=\"{}\">\n", call.name));
  const Json arguments =
      parsed_arguments(call.arguments).value_or(Json::Object{{"arguments", call.arguments}});
  for (const auto& [name, value] : arguments.as_object()) {
    append_parameter(prompt, name, value, tags);
    prompt.plain("\n");
  }
  if (arguments.as_object().empty() && tags.empty_line) prompt.plain("\n");
  close_tag(prompt, tags, "invoke");
}

}  // namespace

std::string tool_lines(
    const std::vector<ToolDefinition>& tools, const ToolTags& tags, bool listed_only
) {
  std::string lines;
  for (const ToolDefinition& tool : tools) {
    if (listed_only && tool.defer_loading) continue;
    if (!lines.empty()) lines += '\n';
    lines += Json(Json::Object{
                      {"name", tool.name},
                      {"description", tool.description},
                      {"parameters", tool.parameters}}
    ).dump(tags.exponent_digits);
  }
  return lines;
}

void append_tools_block(
    PromptText& prompt, const std::vector<ToolDefinition>& tools, const ToolTags& tags
) {
  static constexpr std::string_view kMarks[] = {
      templates::kDsml, templates::kThink, templates::kEndThink};
  const std::string head =
      fmt::format(templates::kTools, fmt::arg("s", tags.space), fmt::arg("calls", tags.calls));
  prompt.mixed(head, kMarks);
  prompt.plain(tool_lines(tools, tags, true));
  prompt.plain(templates::kToolsEnd);
}

void append_calls_opening(PromptText& prompt, const ToolTags& tags) {
  prompt.plain("\n\n");
  open_tag(prompt, tags, tags.calls);
  prompt.plain(">\n");
}

void append_calls(PromptText& prompt, const std::vector<ToolCall>& calls, const ToolTags& tags) {
  if (calls.empty()) return;
  append_calls_opening(prompt, tags);
  for (const ToolCall& call : calls) {
    append_call(prompt, call, tags);
    prompt.plain("\n");
  }
  close_tag(prompt, tags, tags.calls);
}

}  // namespace di::text
