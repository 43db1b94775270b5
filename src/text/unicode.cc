// Calls into utf8proc; see unicode.h.
#include "text/unicode.h"

#include <cstdlib>
#include <memory>
#include <new>

#include <utf8proc.h>

#include "text/utf8.h"

namespace di::text {
namespace {

std::string mapped(std::string_view text, unsigned options) {
  utf8proc_uint8_t* result = nullptr;
  const auto size = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()),
      &result,
      static_cast<utf8proc_option_t>(options)
  );
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(result, std::free);
  if (size < 0) throw std::bad_alloc();
  return {reinterpret_cast<const char*>(result), static_cast<std::size_t>(size)};
}

/// Calls `use` with every character of `text`: its bytes and its code point.
template <typename Use>
void for_each_character(std::string_view text, Use use) {
  while (!text.empty()) {
    const std::string_view character = text.substr(0, utf8_step(text).length);
    use(character, decode_utf8(character));
    text.remove_prefix(character.size());
  }
}

bool is_white_space(char32_t c) {
  if ((c >= 0x09 && c <= 0x0D) || c == 0x85) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

}  // namespace

std::string nfkc(std::string_view text) {
  return mapped(text, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
}

std::string nfd(std::string_view text) {
  return mapped(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
}

std::string without_marks(std::string_view text) {
  std::string out;
  for_each_character(text, [&](std::string_view bytes, char32_t c) {
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    const bool mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                      category == UTF8PROC_CATEGORY_ME;
    if (!mark) out += bytes;
  });
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out;
  for_each_character(text, [&](std::string_view, char32_t c) {
    if (c == 0x130) {
      // The one character whose lower case is two: i and a dot above.
      out += "i\xCC\x87";
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  });
  return out;
}

std::string trimmed(std::string_view text) {
  std::size_t begin = text.size();
  std::size_t end = 0;
  std::size_t at = 0;
  for_each_character(text, [&](std::string_view bytes, char32_t c) {
    if (!is_white_space(c)) {
      if (begin == text.size()) begin = at;
      end = at + bytes.size();
    }
    at += bytes.size();
  });
  return begin < end ? std::string(text.substr(begin, end - begin)) : std::string();
}

}  // namespace di::text
