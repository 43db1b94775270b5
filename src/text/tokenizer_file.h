// tokenizer.json, read and checked. Knows which of the format's many options this engine follows
// and refuses every other one, so that no option is silently ignored.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.h"

namespace di::text {

/// A token that is found in text by its spelling, before byte-pair merging.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;     ///< left out by a decoding that skips special tokens
  bool normalized = false;  ///< searched after all tokens that are not
};

/// What a byte-level BPE tokenizer consists of.
struct TokenizerFile {
  std::vector<std::string> split_patterns;         ///< in order of application; at least one
  std::vector<std::optional<std::string>> tokens;  ///< bytes by id; nothing where no token is
  std::array<int32_t, 256> byte_tokens{};          ///< the token of each single byte
  std::vector<Merge> merges;                       ///< by rank
  std::vector<AddedToken> added_tokens;            ///< as listed
};

/// Parses the text of a tokenizer.json. Throws Error{kInvalidFile} when it is malformed or
/// contradicts itself, Error{kUnsupported} when it asks for what is not implemented; both name
/// `where` and the key.
TokenizerFile parse_tokenizer_file(std::string_view json, std::string_view where);

}  // namespace di::text
