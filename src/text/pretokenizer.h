// Cuts text into the words that byte-pair merging may not cross.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace di::text {

/// The splits of tokenizer.json, applied one after another: each cuts every piece that the ones
/// before it left, at the matches of its pattern; matches and the text between them become pieces.
class Pretokenizer {
 public:
  /// Compiles the patterns. Throws Error{kInvalidFile} with `where` when one does not compile.
  Pretokenizer(const std::vector<std::string>& patterns, std::string_view where);

  /// Appends the words of `text` (valid UTF-8); together they are the whole text, in order.
  void split(std::string_view text, Regex::Scratch& scratch, std::vector<std::string_view>& words)
      const;

 private:
  // Text without characters newer than the library's tables is the rule, and the classes that
  // hold them are slow, so every pattern is there in both readings.
  std::vector<Regex> stages_;
  std::vector<Regex> newer_stages_;
  Regex newer_character_;
};

}  // namespace di::text
