// The cases of a text folder's streams/ files, as far as the output parser goes.
#pragma once

#include "base/json.h"
#include "text/tokenizer.h"
#include "verify/text_case.h"

namespace di::verify {

/// Runs the chunks of one case through detokenizer and output parser, compares reasoning, answer,
/// calls and finish reason with the joined deltas and with the final response, and then reads the
/// same text whole, by bytes and in random pieces. Protocol events are not compared.
CaseOutcome run_stream_case(const Json& test, const text::Tokenizer& tokenizer);

}  // namespace di::verify
