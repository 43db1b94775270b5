// The flags that shape a prompt and its answer, shared by `generate` and `chat`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/generation.h"
#include "text/chat_encoding.h"
#include "text/conversation.h"

namespace di::cli {

struct PromptOptions {
  std::string system;                 ///< system message; empty: none
  std::string thinking = "off";       ///< off, low, high, xhigh, max or 1..100
  std::string format = "v4.1";        ///< chat format: v4.1 or v4
  std::optional<double> temperature;  ///< unset: the model's generation_config.json, else 1
  std::optional<double> top_p;        ///< the same
  int64_t top_k = 0;
  uint64_t seed = 0;
  int64_t max_tokens = 512;
  std::vector<std::string> stop;
};

void add_prompt_options(CLI::App& command, PromptOptions& options);

/// Sets thinking and effort. Throws Error{kInvalidArgument} for an unknown effort.
void set_thinking(text::Conversation& conversation, const std::string& thinking);

/// A message of text alone.
text::Message text_message(text::Role role, std::string content);

/// Sampling parameters: flags over the model's generation_config.json over 1.
sampling::SamplingParams sampling_params(const PromptOptions& options, const std::string& folder);

/// How to read the answer to `conversation`.
GenerationOptions generation_options(
    const PromptOptions& options, const text::Conversation& conversation, const std::string& folder
);

}  // namespace di::cli
