// Prompt text under construction: plain pieces and marks.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace di::text {

/// Collects a prompt and remembers which of its bytes are marks.
class PromptText {
 public:
  /// Appends text in which nothing is a mark, whatever it spells.
  void plain(std::string_view text) { text_ += text; }

  /// Appends one mark.
  void mark(std::string_view spelling);

  /// Appends text in which the first `limit` spellings of `marks` are marks.
  void mixed(
      std::string_view text,
      std::span<const std::string_view> marks,
      std::size_t limit = std::string_view::npos
  );

  const std::string& text() const { return text_; }
  const std::vector<ByteRange>& mark_ranges() const { return ranges_; }

 private:
  std::string text_;
  std::vector<ByteRange> ranges_;
};

}  // namespace di::text
