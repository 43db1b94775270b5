// Token ids to text, one id at a time, for streaming.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"

namespace di::text {

/// Turns a stream of ids into pieces of text whose concatenation is Tokenizer::decode() of all ids.
/// No piece ends inside a character: bytes are held while their text ends in U+FFFD, which may
/// still become a character.
class Detokenizer {
 public:
  /// `tokenizer` must outlive this object.
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  /// The text that `id` completes; empty while a character is open.
  std::string push(int32_t id);

  /// The text of the held bytes, for the end of the stream.
  std::string flush();

  /// How many of the pushed ids wait for a later one.
  int held() const { return held_; }

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
  int held_ = 0;
};

}  // namespace di::text
