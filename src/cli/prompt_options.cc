#include "cli/prompt_options.h"

#include <charconv>
#include <filesystem>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"

namespace di::cli {
namespace {

/// A number of generation_config.json, when the file is there and has it.
std::optional<double> model_default(const std::string& folder, const char* key) {
  const std::string path = folder + "/generation_config.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const Json config = Json::parse(read_text_file(path, 1 << 20), path);
  const Json* value = config.find(key);
  return value == nullptr ? std::nullopt : std::optional(value->as_number());
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
  command.add_option(
      "--temperature",
      options.temperature,
      "0: always the best token (default: the model's generation_config.json)"
  );
  command.add_option(
      "--top-p",
      options.top_p,
      "Draw from the fewest tokens that reach this probability (default: the model's)"
  );
  command.add_option("--top-k", options.top_k, "Draw from this many best tokens; 0: all")
      ->capture_default_str();
  command
      .add_option(
          "--seed", options.seed, "Of the random numbers; the same seed gives the same text"
      )
      ->capture_default_str();
  command.add_option("-n,--max-tokens", options.max_tokens, "Longest answer, in tokens")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--stop", options.stop, "End the answer before this text; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
}

void set_thinking(text::Conversation& conversation, const std::string& thinking) {
  conversation.thinking = thinking != "off";
  if (!conversation.thinking) return;
  int64_t number = 0;
  const char* end = thinking.data() + thinking.size();
  const auto parsed = std::from_chars(thinking.data(), end, number);
  const bool is_number = parsed.ec == std::errc() && parsed.ptr == end;
  conversation.effort = text::ReasoningEffort::from_json(is_number ? Json(number) : Json(thinking));
}

text::Message text_message(text::Role role, std::string content) {
  text::Message message;
  message.role = role;
  message.content = std::move(content);
  return message;
}

sampling::SamplingParams sampling_params(const PromptOptions& options, const std::string& folder) {
  const auto choose = [&](const std::optional<double>& flag, const char* key) {
    return flag ? *flag : model_default(folder, key).value_or(1.0);
  };
  sampling::SamplingParams params;
  params.temperature = choose(options.temperature, "temperature");
  params.top_p = choose(options.top_p, "top_p");
  params.top_k = options.top_k;
  params.seed = options.seed;
  params.max_tokens = options.max_tokens;
  return params;
}

GenerationOptions generation_options(
    const PromptOptions& options, const text::Conversation& conversation, const std::string& folder
) {
  GenerationOptions result;
  result.sampling = sampling_params(options, folder);
  result.parser = text::OutputParserOptions::for_conversation(conversation);
  result.parser.stop_strings = options.stop;
  return result;
}

}  // namespace di::cli
