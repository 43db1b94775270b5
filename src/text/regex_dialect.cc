// Rewriting escapes; see regex_dialect.h.
#include "text/regex_dialect.h"

#include <string_view>

#include <fmt/format.h>

#include "text/unicode16.h"

namespace di::text {
namespace {

/// White_Space, to stand inside [ ]. PCRE2's own \s also holds U+180E.
constexpr std::string_view kWhiteSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

/// A class as an escape: `members` stand inside [ ] and mean it; `length` bytes name it.
struct EscapedClass {
  std::string members;
  bool negated = false;
  std::size_t length = 0;
};

/// The class that the escape at the start of `text` (a backslash) names; length 0 when it is none
/// that has to be rewritten.
EscapedClass escaped_class(std::string_view text, Categories categories) {
  const std::string_view name = text.substr(0, 2);
  if (name == "\\s" || name == "\\S") return {std::string(kWhiteSpace), name == "\\S", 2};
  if ((name != "\\p" && name != "\\P") || text.size() < 5 || text[2] != '{' || text[4] != '}') {
    return {};
  }
  if (categories == Categories::kLibrary) return {};
  for (const CategoryAddition& addition : kUnicode16Additions) {
    if (addition.category != text[3]) continue;
    return {fmt::format("\\p{{{}}}{}", text[3], addition.ranges), name == "\\P", 5};
  }
  return {};
}

}  // namespace

std::string pcre2_pattern(const std::string& pattern, Categories categories) {
  std::string out;
  bool in_set = false;
  for (std::size_t i = 0; i < pattern.size();) {
    EscapedClass escaped;
    if (pattern[i] == '\\') {
      escaped = escaped_class(std::string_view(pattern).substr(i), categories);
    }
    if (escaped.length > 0 && !(in_set && escaped.negated)) {
      out += in_set ? escaped.members
                    : fmt::format("[{}{}]", escaped.negated ? "^" : "", escaped.members);
      i += escaped.length;
    } else if (pattern[i] == '\\') {
      out += pattern.substr(i, 2);
      i += 2;
    } else {
      if (pattern[i] == '[') in_set = true;
      if (pattern[i] == ']') in_set = false;
      out += pattern[i++];
    }
  }
  return out;
}

std::string newer_character_pattern() {
  std::string members;
  for (const CategoryAddition& addition : kUnicode16Additions) {
    members += addition.ranges;
  }
  return fmt::format("[{}]", members);
}

}  // namespace di::text
