// Regular expressions over UTF-8; the only file that touches PCRE2.
//
// Patterns are in the dialect of tokenizer.json, as regex_dialect.h describes it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/regex_dialect.h"

namespace di::text {

/// A half-open range of bytes.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;

  bool operator==(const ByteRange&) const = default;
};

/// One compiled pattern. Const use is thread-safe; each thread brings its own Scratch.
class Regex {
 public:
  /// Room for one match at a time, for any pattern.
  class Scratch {
   public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

   private:
    friend class Regex;
    void* match_data_;
  };

  /// Compiles `pattern`. Throws Error{kInvalidFile} with `where`, the pattern and the reason.
  Regex(const std::string& pattern, Categories categories, std::string_view where);

  /// The first match in `text` (valid UTF-8) that starts at byte `from` or later. Throws
  /// Error{kInvalidFile} when the pattern backtracks beyond the limit on this text.
  std::optional<ByteRange> find(std::string_view text, std::size_t from, Scratch& scratch) const;

 private:
  std::shared_ptr<const void> code_;
  std::string pattern_;
};

}  // namespace di::text
