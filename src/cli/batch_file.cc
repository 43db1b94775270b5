#include "cli/batch_file.h"

#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "sampling/params_json.h"

namespace di::cli {
namespace {

EncodedPrompt prompt_of_ids(const Json& ids) {
  EncodedPrompt prompt{.answer = {.parse = false}};
  for (const Json& id : ids.as_array()) {
    const int64_t value = id.as_integer();
    if (value < 0 || value > INT32_MAX) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is no token id", value));
    }
    prompt.ids.push_back(static_cast<int32_t>(value));
  }
  return prompt;
}

/// Takes the stop strings of a conversation out of `sampling`: its reader looks for them, in
/// answers alone.
EncodedPrompt prompt_of_conversation(
    const Json& json,
    const std::string& format,
    sampling::SamplingParams& sampling,
    const text::Tokenizer& tokenizer
) {
  if (sampling.min_tokens > 0 && !sampling.stop.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "stop in a conversation does not know min_tokens; use one of them, or a prompt"
    );
  }
  const std::vector<std::string> stop = std::exchange(sampling.stop, {});
  return encode_conversation(text::Conversation::from_json(json), format, stop, tokenizer);
}

}  // namespace

BatchLine parse_batch_line(
    const Json& json, const BatchDefaults& defaults, const text::Tokenizer& tokenizer
) {
  if (!json.is_object()) throw Error(ErrorCode::kInvalidArgument, "expected an object");
  BatchLine line;
  engine::Request& request = line.request;
  Json sampling = defaults.sampling;
  const Json* prompt = nullptr;
  std::string prompt_kind;
  for (const auto& [key, value] : json.as_object()) {
    if (key == "prompt" || key == "prompt_token_ids" || key == "conversation") {
      if (prompt != nullptr) {
        throw Error(
            ErrorCode::kInvalidArgument,
            fmt::format("{} and {} exclude each other", prompt_kind, key)
        );
      }
      prompt = &value;
      prompt_kind = key;
    } else if (key == "id") {
      line.id = value;
    } else if (key == "user") {
      request.user = value.as_string();
    } else if (key == "priority") {
      request.priority = static_cast<int>(std::clamp<int64_t>(value.as_integer(), -1000, 1000));
    } else if (key == "timeout_seconds") {
      request.timeout_seconds = value.as_number();
    } else {
      sampling.set(key, value);
    }
  }
  request.sampling = sampling::params_from_json(sampling);
  if (prompt == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "prompt, prompt_token_ids or conversation is missing");
  }
  EncodedPrompt encoded =
      prompt_kind == "prompt" ? encode_raw(prompt->as_string(), tokenizer)
      : prompt_kind == "prompt_token_ids"
          ? prompt_of_ids(*prompt)
          : prompt_of_conversation(*prompt, defaults.format, request.sampling, tokenizer);
  request.prompt_token_ids = std::move(encoded.ids);
  line.answer = std::move(encoded.answer);
  return line;
}

BatchFile::BatchFile(const std::string& path) {
  if (path == "-") {
    in_ = &std::cin;
    return;
  }
  file_.open(path);
  if (!file_) throw Error(ErrorCode::kNotFound, fmt::format("{}: it cannot be read", path));
  in_ = &file_;
}

std::optional<std::string> BatchFile::next() {
  std::string text;
  while (std::getline(*in_, text)) {
    ++line_;
    if (text.find_first_not_of(" \t\r") != std::string::npos) return text;
  }
  return std::nullopt;
}

}  // namespace di::cli
