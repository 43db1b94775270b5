// The cases of a text folder's tokenizer/ files.
#pragma once

#include "base/json.h"
#include "text/tokenizer.h"
#include "verify/text_case.h"

namespace di::verify {

/// Runs one case. What it holds says what is checked: `text` or `bytes_hex` encoding and the way
/// back, `text_rule` a long text by the digest of its ids, `steps` decoding id by id, `ids` alone
/// decoding at once.
CaseOutcome run_tokenizer_case(const Json& test, const text::Tokenizer& tokenizer);

}  // namespace di::verify
