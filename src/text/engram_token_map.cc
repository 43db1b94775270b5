// The folding of token texts; see engram_token_map.h.
#include "text/engram_token_map.h"

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "text/byte_level.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace di::text {
namespace {

/// Every run of space, tab, carriage return and line feed as one space.
std::string with_single_spaces(std::string_view text) {
  std::string out;
  bool in_run = false;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!blank) out += c;
    if (blank && !in_run) out += ' ';
    in_run = blank;
  }
  return out;
}

std::string folded(std::string_view text) {
  const std::string spaced = with_single_spaces(lower_case(without_marks(nfd(nfkc(text)))));
  // A text of blanks alone keeps one, so that it differs from the empty text.
  return spaced == " " ? spaced : trimmed(spaced);
}

std::string class_key(const Tokenizer& tokenizer, int32_t id) {
  const std::string text = tokenizer.decode(std::span(&id, 1));
  if (text.find(kReplacement) != std::string::npos) {
    return byte_level_spelling(tokenizer.token_bytes(id));
  }
  std::string key = folded(text);
  return key.empty() ? text : key;
}

}  // namespace

EngramTokenMap build_engram_token_map(const Tokenizer& tokenizer, int32_t vocab_size) {
  EngramTokenMap map;
  map.compressed.reserve(static_cast<std::size_t>(vocab_size));
  std::unordered_map<std::string, int32_t> classes;
  for (int32_t id = 0; id < vocab_size; ++id) {
    const auto [known, is_new] = classes.emplace(class_key(tokenizer, id), map.classes);
    if (is_new) ++map.classes;
    map.compressed.push_back(known->second);
  }
  return map;
}

}  // namespace di::text
