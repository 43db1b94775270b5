// Bytes that print (! to ~, ¡ to ¬, ® to ÿ) spell themselves; the other 68, in ascending order, are
// spelled by the characters from U+0100 on.
#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace di::text {
namespace {

constexpr bool spells_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr int kUnprintable = 68;

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<uint8_t, kUnprintable> shifted{};  ///< the byte that U+0100 + i spells

  constexpr Alphabet() {
    std::size_t next = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const auto index = static_cast<std::size_t>(byte);
      if (spells_itself(byte)) {
        character[index] = static_cast<char32_t>(byte);
      } else {
        character[index] = static_cast<char32_t>(0x100 + next);
        shifted[next++] = static_cast<uint8_t>(byte);
      }
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

std::string byte_spelling(uint8_t byte) {
  std::string out;
  append_utf8(out, kAlphabet.character[byte]);
  return out;
}

std::string byte_level_spelling(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes)
    append_utf8(out, kAlphabet.character[static_cast<uint8_t>(byte)]);
  return out;
}

std::optional<std::string> byte_level_bytes(std::string_view spelling) {
  std::string bytes;
  while (!spelling.empty()) {
    const std::size_t length = utf8_step(spelling).length;
    const char32_t character = decode_utf8(spelling.substr(0, length));
    if (character < 0x100 && spells_itself(static_cast<int>(character))) {
      bytes += static_cast<char>(character);
    } else if (character >= 0x100 && character < 0x100 + kUnprintable) {
      bytes += static_cast<char>(kAlphabet.shifted[character - 0x100]);
    } else {
      return std::nullopt;
    }
    spelling.remove_prefix(length);
  }
  return bytes;
}

}  // namespace di::text
