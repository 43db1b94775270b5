// Conversation to prompt: the chat formats of DeepSeek-V4.1 and DeepSeek-V4.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/conversation.h"
#include "text/regex.h"
#include "text/tokenizer.h"

namespace di::text {

/// Which prompt format a model was trained with.
enum class ChatVersion { kV41, kV4 };

/// The version called `name`: "v4.1" or "v4". Throws Error{kInvalidArgument} for any other name.
ChatVersion chat_version_from(std::string_view name);

/// The spelling that stands for an image in message content.
std::string_view default_image_mark(ChatVersion version);

/// A prompt before tokenization.
struct RenderedPrompt {
  std::string text;
  std::vector<ByteRange> special_ranges;  ///< parts that are marks, one token each, ascending
  std::vector<Json> images;               ///< in the order of their marks in the text

  bool operator==(const RenderedPrompt&) const = default;
};

/// Renders `conversation`. `image_mark` is the spelling that its contents use for images.
RenderedPrompt render(
    const Conversation& conversation, ChatVersion version, std::string_view image_mark
);
RenderedPrompt render(const Conversation& conversation, ChatVersion version);

/// The ids of a prompt: one for each mark, and between marks the encoding of plain text, so that
/// text which spells a mark never becomes one. Throws Error{kInvalidArgument} when the tokenizer
/// has no such mark.
std::vector<int32_t> encode(const RenderedPrompt& prompt, const Tokenizer& tokenizer);

}  // namespace di::text
