// The Engram's view of the vocabulary: tokens that read alike share one compressed id.
#pragma once

#include <cstdint>
#include <vector>

#include "text/tokenizer.h"

namespace di::text {

/// Token id to compressed id.
struct EngramTokenMap {
  std::vector<int32_t> compressed;  ///< by token id
  int32_t classes = 0;              ///< how many compressed ids there are: 99,092 officially
};

/// Builds the map for ids 0 to vocab_size - 1, which may reach beyond the tokenizer's tokens (those
/// ids all share the class of the empty text). A class is a text after folding of compatibility
/// forms, accents, case and blanks; classes are numbered in order of their first id. A token that
/// is no whole UTF-8 text is known by its vocabulary spelling.
EngramTokenMap build_engram_token_map(const Tokenizer& tokenizer, int32_t vocab_size);

}  // namespace di::text
