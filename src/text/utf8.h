// UTF-8 that may be broken: stepping, checking and repairing. Both directions of the tokenizer
// share one rule: every maximal invalid subpart (Unicode, table 3-7) reads as one U+FFFD.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace di::text {

/// The replacement character U+FFFD in UTF-8.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// What stands at the start of a text: `length` bytes that are one character, or that are one
/// maximal invalid subpart.
struct Utf8Step {
  std::size_t length;
  bool valid;
};

/// The first step of a non-empty `text`.
Utf8Step utf8_step(std::string_view text);

/// The length of the longest valid prefix.
std::size_t valid_utf8_prefix(std::string_view text);

/// The text with every maximal invalid subpart replaced by U+FFFD.
std::string repaired_utf8(std::string_view text);

/// Whether repaired_utf8(text) ends in U+FFFD. Looks at the last four bytes only.
bool ends_in_replacement(std::string_view text);

/// Appends one code point (at most U+10FFFF).
void append_utf8(std::string& out, char32_t code_point);

/// The code point of the valid character that fills `character`.
char32_t decode_utf8(std::string_view character);

}  // namespace di::text
