// The fixed texts of the chat encodings. Pieces between marks are completed by chat_encoding.cc.
#pragma once

#include <string_view>

namespace di::text::templates {

// Marks: added tokens of the vocabulary.
inline constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kSystem = "<｜System｜>";
inline constexpr std::string_view kUser = "<｜User｜>";
inline constexpr std::string_view kAssistant = "<｜Assistant｜>";
inline constexpr std::string_view kReminder = "<｜latest_reminder｜>";
inline constexpr std::string_view kThink = "<think>";
inline constexpr std::string_view kEndThink = "</think>";
inline constexpr std::string_view kDsml = "｜DSML｜";
inline constexpr std::string_view kImageV41 = "<｜deepseek_image｜>";
inline constexpr std::string_view kImageV4 = "<｜image｜>";

/// The marks that an assistant's own text may hold, for places in an image.
inline constexpr std::string_view kGrounding[] = {
    "<｜ref｜>",
    "<｜/ref｜>",
    "<｜box｜>",
    "<｜/box｜>",
    "<｜point｜>",
    "<｜/point｜>",
    "<｜polygon｜>",
    "<｜/polygon｜>",
};

/// The effort line of V4.1, with the number where {} stands.
inline constexpr std::string_view kEffortV41 =
    "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the "
    "reasoning)\n\n";

/// The effort texts of V4; the low effort has none.
inline constexpr std::string_view kHighEffortV4 =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to "
    "resolve the root cause, rigorously stress-testing your logic against all potential paths, "
    "edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate "
    "step, considered alternative, and rejected hypothesis to ensure absolutely no assumption "
    "is left unchecked.\n\n";
inline constexpr std::string_view kMaxEffortV4 =
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: "
    "exhaustively decompose the problem into its most fundamental components, trace every "
    "causal chain to its root, and resolve the underlying cause rather than any surface "
    "symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple "
    "angles and are certain that no assumption remains unchecked and no error remains "
    "undiscovered.\n\n";

/// The tools block up to the list of tools. {s} is the space in V4.1's tags, {calls} the name of
/// the tag around the calls.
inline constexpr std::string_view kTools =
    "\n\n## Tools\n\n"
    "You have access to a set of tools to help answer the user's question. You can invoke "
    "tools by writing a \"<｜DSML｜{s}{calls}>\" block like the following:\n\n"
    "<｜DSML｜{s}{calls}>\n"
    "<｜DSML｜{s}invoke name=\"$TOOL_NAME\">\n"
    "<｜DSML｜{s}parameter name=\"$PARAMETER_NAME\" "
    "string=\"true|false\">$PARAMETER_VALUE</｜DSML｜{s}parameter>\n"
    "...\n"
    "</｜DSML｜{s}invoke>\n"
    "<｜DSML｜{s}invoke name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</｜DSML｜{s}invoke>\n"
    "</｜DSML｜{s}{calls}>\n\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other "
    "types (numbers, booleans, arrays, objects), pass the value in JSON format and set "
    "`string=\"false\"`.\n\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete "
    "reasoning inside <think>...</think> BEFORE any tool calls or final response.\n\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n\n"
    "### Available Tool Schemas\n\n";

/// The tools block after the list of tools.
inline constexpr std::string_view kToolsEnd =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke "
    "tool calls.\n";

inline constexpr std::string_view kUpdatedTools = "\n\n### Updated Tool Schemas\n\n";

/// Stands before the JSON Schema of the answer.
inline constexpr std::string_view kResponseSchema =
    "\n\n## Response Format:\n\n"
    "You MUST strictly adhere to the following schema to reply:\n";

/// The JSON mode of V4, which names no schema.
inline constexpr std::string_view kJsonObjectV4 =
    "\n\nYou are a helpful assistant designed to output JSON.\n"
    "## Response Format:\n\n"
    "Reply with JSON object ONLY.";

}  // namespace di::text::templates
