#include "cli/prompt_options.h"

#include <charconv>

#include "base/json.h"

namespace di::cli {
namespace {

void set_thinking(text::Conversation& conversation, const std::string& thinking) {
  conversation.thinking = thinking != "off";
  if (!conversation.thinking) return;
  int64_t number = 0;
  const char* end = thinking.data() + thinking.size();
  const auto parsed = std::from_chars(thinking.data(), end, number);
  const bool is_number = parsed.ec == std::errc() && parsed.ptr == end;
  conversation.effort = text::ReasoningEffort::from_json(is_number ? Json(number) : Json(thinking));
}

}  // namespace

void add_prompt_options(CLI::App& command, PromptOptions& options) {
  command.add_option("--system", options.system, "System message")->type_name("TEXT");
  command
      .add_option(
          "--thinking", options.thinking, "off, low, high, xhigh, max, or an effort from 1 to 100"
      )
      ->capture_default_str();
  command.add_option("--format", options.format, "Chat format: v4.1 or v4")
      ->check(CLI::IsMember({"v4.1", "v4"}))
      ->capture_default_str();
}

text::Message text_message(text::Role role, std::string content) {
  text::Message message;
  message.role = role;
  message.content = std::move(content);
  return message;
}

text::Conversation start_conversation(const PromptOptions& options) {
  text::Conversation conversation;
  set_thinking(conversation, options.thinking);
  if (!options.system.empty()) {
    conversation.messages.push_back(text_message(text::Role::kSystem, options.system));
  }
  return conversation;
}

EncodedPrompt encode_conversation(
    const text::Conversation& conversation,
    const std::string& format,
    const std::vector<std::string>& stop,
    const text::Tokenizer& tokenizer
) {
  const text::RenderedPrompt rendered = text::render(conversation, text::chat_version_from(format));
  EncodedPrompt prompt{.ids = text::encode(rendered, tokenizer)};
  prompt.answer.parser = text::OutputParserOptions::for_conversation(conversation);
  prompt.answer.parser.stop_strings = stop;
  return prompt;
}

EncodedPrompt encode_raw(const std::string& text, const text::Tokenizer& tokenizer) {
  return {
      .ids = tokenizer.encode(text, text::AddedTokens::kRecognised), .answer = {.parse = false}};
}

}  // namespace di::cli
