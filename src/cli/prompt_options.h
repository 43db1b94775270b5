// The flags that shape a prompt in the chat format, shared by commands that answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/answer.h"
#include "text/chat_encoding.h"
#include "text/conversation.h"

namespace di::cli {

struct PromptOptions {
  std::string system;            ///< system message; empty: none
  std::string thinking = "off";  ///< off, low, high, xhigh, max or 1..100
  std::string format = "v4.1";   ///< chat format: v4.1 or v4
};

void add_prompt_options(CLI::App& command, PromptOptions& options);

/// A prompt's ids and how to read what follows them.
struct EncodedPrompt {
  std::vector<int32_t> ids = {};
  AnswerOptions answer = {};
};

/// A conversation with the system message and thinking of `options`, and nothing said yet. Throws
/// Error{kInvalidArgument} for an unknown effort.
text::Conversation start_conversation(const PromptOptions& options);

/// A message of text alone.
text::Message text_message(text::Role role, std::string content);

/// Renders and encodes. `stop` ends answers, not reasoning or tool calls.
EncodedPrompt encode_conversation(
    const text::Conversation& conversation,
    const std::string& format,
    const std::vector<std::string>& stop,
    const text::Tokenizer& tokenizer
);

/// Encodes a text as it is, special tokens recognised; what follows is plain text.
EncodedPrompt encode_raw(const std::string& text, const text::Tokenizer& tokenizer);

}  // namespace di::cli
