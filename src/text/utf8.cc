// Stepping through UTF-8; see utf8.h.
#include "text/utf8.h"

#include <cstdint>
#include <cstring>

namespace di::text {
namespace {

/// Bytes allowed after a lead byte: how many, and the narrower range of the first of them.
struct Lead {
  int continuation;
  uint8_t low;
  uint8_t high;
};

Lead lead_of(uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {1, 0x80, 0xBF};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {2, 0x80, 0xBF};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {3, 0x80, 0xBF};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

bool is_continuation(char byte) {
  return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
}

/// The length of the run of ASCII bytes at the start, counted in whole words.
std::size_t ascii_words(std::string_view text) {
  std::size_t length = 0;
  uint64_t word = 0;
  while (length + sizeof word <= text.size()) {
    std::memcpy(&word, text.data() + length, sizeof word);
    if ((word & 0x8080808080808080) != 0) break;
    length += sizeof word;
  }
  return length;
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<uint8_t>(text[i]); };
  if (byte(0) < 0x80) return {1, true};
  const Lead lead = lead_of(byte(0));
  std::size_t length = 1;
  for (int i = 0; i < lead.continuation; ++i, ++length) {
    const uint8_t low = i == 0 ? lead.low : 0x80;
    const uint8_t high = i == 0 ? lead.high : 0xBF;
    if (length == text.size() || byte(length) < low || byte(length) > high) return {length, false};
  }
  return {length, lead.continuation > 0};
}

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t done = ascii_words(text);
  while (done < text.size()) {
    const Utf8Step step = utf8_step(text.substr(done));
    if (!step.valid) break;
    done += step.length;
    if (step.length == 1) done += ascii_words(text.substr(done));
  }
  return done;
}

std::string repaired_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += kReplacement;
    text.remove_prefix(utf8_step(text).length);
  }
  return out;
}

bool ends_in_replacement(std::string_view text) {
  if (text.empty()) return false;
  // A byte that does not continue a character starts a step of its own, wherever decoding began.
  std::size_t start = text.size() - 1;
  while (start > 0 && text.size() - start < 4 && is_continuation(text[start]))
    --start;
  std::string_view tail = text.substr(start);
  while (true) {
    const Utf8Step step = utf8_step(tail);
    if (step.length == tail.size()) return !step.valid || tail == kReplacement;
    tail.remove_prefix(step.length);
  }
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto add = [&](char32_t bits) { out += static_cast<char>(bits); };
  const auto add_continuation = [&](int shift) { add(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) {
    add(code_point);
  } else if (code_point < 0x800) {
    add(0xC0 | (code_point >> 6));
    add_continuation(0);
  } else if (code_point < 0x10000) {
    add(0xE0 | (code_point >> 12));
    add_continuation(6);
    add_continuation(0);
  } else {
    add(0xF0 | (code_point >> 18));
    add_continuation(12);
    add_continuation(6);
    add_continuation(0);
  }
}

char32_t decode_utf8(std::string_view character) {
  const auto byte = [&](std::size_t i) { return char32_t{static_cast<uint8_t>(character[i])}; };
  if (character.size() == 1) return byte(0);
  char32_t code_point = byte(0) & (0x7Fu >> character.size());
  for (std::size_t i = 1; i < character.size(); ++i) {
    code_point = (code_point << 6) | (byte(i) & 0x3F);
  }
  return code_point;
}

}  // namespace di::text
