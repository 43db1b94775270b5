// Text to token ids and back, exactly as the tokenizer.json of a model says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_file.h"

namespace di::text {

/// What encode() does with text that spells an added token.
enum class AddedTokens {
  kRecognised,  ///< it becomes that token
  kPlain,       ///< it is text like any other
};

/// A byte-level BPE tokenizer. Const use is thread-safe. No token is added at either end of a text.
class Tokenizer {
 public:
  /// Reads a tokenizer.json. Throws as parse_tokenizer_file and read_text_file do.
  static Tokenizer load(const std::string& path);

  /// Builds from a checked file; `where` stands in errors about its patterns.
  Tokenizer(TokenizerFile file, std::string_view where);

  /// The ids of `text`. Every maximal invalid UTF-8 subpart reads as U+FFFD. Throws
  /// Error{kInvalidArgument} for 2 GiB and more.
  std::vector<int32_t> encode(std::string_view text, AddedTokens added) const;

  /// The text of `ids`: their bytes joined, every maximal invalid UTF-8 subpart as U+FFFD. An id
  /// without a token adds nothing.
  std::string decode(std::span<const int32_t> ids) const;

  /// decode() without the tokens that are flagged special.
  std::string decode_skip_special(std::span<const int32_t> ids) const;

  /// The bytes of one token, often a part of a character; empty when there is no such token.
  std::string_view token_bytes(int32_t id) const;

  /// The id of the added token that is spelled `content`.
  std::optional<int32_t> id_of(std::string_view content) const;

  /// Whether the token is flagged special (BOS, EOS, images; not <think> or role marks).
  bool is_special(int32_t id) const;

  /// One more than the highest id; 129,280 for the official file.
  int32_t vocab_size() const { return static_cast<int32_t>(tokens_.size()); }

 private:
  struct Scratch;

  void encode_plain(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_recognised(
      std::size_t stage, std::string_view text, Scratch& scratch, std::vector<int32_t>& ids
  ) const;

  std::vector<std::string> tokens_;  ///< bytes by id
  std::vector<bool> special_;        ///< by id
  std::unordered_map<std::string, int32_t> added_ids_;
  std::vector<SpellingSet> added_stages_;  ///< verbatim tokens, then those marked normalized
  Pretokenizer pretokenizer_;
  Bpe bpe_;
};

}  // namespace di::text
