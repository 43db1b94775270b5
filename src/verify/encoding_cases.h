// The cases of a text folder's encoding/ files.
#pragma once

#include "base/json.h"
#include "text/tokenizer.h"
#include "verify/text_case.h"

namespace di::verify {

/// The tokenizers that the two chat versions need.
struct ChatTokenizers {
  const text::Tokenizer& v41;
  const text::Tokenizer& v4;
};

/// Runs one case: a conversation with its prompt, mark ranges, images and ids, or its error; or one
/// of the named error cases that state a message only.
CaseOutcome run_encoding_case(const Json& test, const ChatTokenizers& tokenizers);

}  // namespace di::verify
