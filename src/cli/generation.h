// One answer from a session: prefill, then token by token until something ends it. For `chat`,
// whose session keeps what it has read; everything else asks an engine.
#pragma once

#include <cstdint>
#include <span>

#include "cli/answer.h"
#include "cli/runtime.h"
#include "sampling/params.h"

namespace di::cli {

/// Appends `prompt` to the session and generates an answer behind it, by parameters of one choice
/// whose seed is set; stop strings are the reader's. Throws Error for parameters out of range and a
/// prompt that leaves no room.
Answer generate(
    Runtime& runtime,
    model::Session& session,
    std::span<const int32_t> prompt,
    const sampling::SamplingParams& sampling,
    AnswerReader& reader,
    AnswerTimes& times
);

}  // namespace di::cli
