// One answer: prefill, then token by token until something ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/runtime.h"
#include "sampling/sampler.h"
#include "text/output_parser.h"

namespace di::cli {

/// What ended an answer.
enum class StopReason { kEos, kStopString, kToolCalls, kLength, kContext };

/// "eos", "stop_string", "tool_calls", "length" or "context".
const char* name_of(StopReason reason);

struct GenerationOptions {
  sampling::SamplingParams sampling;  ///< max_tokens too; stop strings are the parser's
  bool parse = true;  ///< split into reasoning, answer and calls; otherwise plain text
  text::OutputParserOptions parser;
};

/// What came out, and how long it took.
struct GenerationResult {
  std::vector<int32_t> ids;  ///< without the token that ended the answer
  std::vector<text::OutputEvent> events;
  StopReason reason = StopReason::kEos;
  int64_t prompt_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;  ///< from the first sampled token to the last

  double tokens_per_second() const {
    return decode_seconds > 0 ? static_cast<double>(ids.size()) / decode_seconds : 0;
  }
  std::string text_of(text::OutputEvent::Kind kind) const;
};

/// Called with each piece of output as soon as it is settled.
using OnOutput = std::function<void(const text::OutputEvent&)>;

/// Appends `prompt` to the session and generates an answer behind it.
GenerationResult generate(
    Runtime& runtime,
    model::Session& session,
    std::span<const int32_t> prompt,
    const GenerationOptions& options,
    const OnOutput& on_output
);

}  // namespace di::cli
