// How tools and their calls stand in a prompt.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "text/conversation.h"
#include "text/prompt_text.h"

namespace di::text {

/// What tool calls look like in one chat version.
struct ToolTags {
  std::string_view space;  ///< between the DSML mark and the tag's name
  std::string_view calls;  ///< the name of the tag around all calls of a turn
  bool empty_line;         ///< stands in a call without arguments
  int exponent_digits;     ///< at least so many in the exponent of a number
};
inline constexpr ToolTags kTagsV41 = {" ", "calls", true, 2};
inline constexpr ToolTags kTagsV4 = {"", "tool_calls", false, 1};

/// One line of JSON for each tool: name, description and parameters. With `listed_only`, tools with
/// deferred loading are left out.
std::string tool_lines(
    const std::vector<ToolDefinition>& tools, const ToolTags& tags, bool listed_only
);

/// Appends the block that explains tool calls and lists the tools.
void append_tools_block(
    PromptText& prompt, const std::vector<ToolDefinition>& tools, const ToolTags& tags
);

/// Appends the line that opens a block of calls.
void append_calls_opening(PromptText& prompt, const ToolTags& tags);

/// Appends the calls of one assistant turn, or nothing when there are none.
void append_calls(PromptText& prompt, const std::vector<ToolCall>& calls, const ToolTags& tags);

}  // namespace di::text
