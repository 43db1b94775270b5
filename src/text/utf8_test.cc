// Broken UTF-8 of every kind, and agreement between the fast paths and one step at a time.
#include "text/utf8.h"

#include <random>

#include <gtest/gtest.h>

#include "text/byte_level.h"

namespace di::text {
namespace {

/// Bytes that are likely to meet in interesting ways.
std::string random_bytes(std::mt19937& random, std::size_t size) {
  static constexpr std::string_view kBytes =
      "ab\x80\xBF\xC2\xE0\xA0\xE4\xBD\xED\x9F\xEF\xBF\xBD\xF0\x90\x9F\x98\xF4\x8F\xF5\xFF";
  std::string bytes;
  while (bytes.size() < size)
    bytes += kBytes[random() % kBytes.size()];
  return bytes;
}

TEST(Utf8, ReadsEveryMaximalInvalidSubpartAsOneReplacement) {
  EXPECT_EQ(
      repaired_utf8("a\xFF"
                    "b"),
      "a\uFFFDb"
  );
  EXPECT_EQ(repaired_utf8("\xE2\x82"), "\uFFFD");
  EXPECT_EQ(repaired_utf8("\xE2\x82\xAC"), "€");
  EXPECT_EQ(repaired_utf8("\xF0\x28\x8C\xBC"), "\uFFFD(\uFFFD\uFFFD");
  EXPECT_EQ(repaired_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(repaired_utf8("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_EQ(repaired_utf8("\xF0\x9F\x98"), "\uFFFD");
}

TEST(Utf8, LeavesValidTextAlone) {
  const std::string text = "plain ascii, then äöü 汉字 😀 and ascii again";
  EXPECT_EQ(valid_utf8_prefix(text), text.size());
  EXPECT_EQ(repaired_utf8(text), text);
}

TEST(Utf8, RepairedTextIsValidAndKnowsItsEnd) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const std::string bytes = random_bytes(random, random() % 12);
    const std::string repaired = repaired_utf8(bytes);
    EXPECT_EQ(valid_utf8_prefix(repaired), repaired.size());
    EXPECT_EQ(ends_in_replacement(bytes), repaired.ends_with(kReplacement)) << i;
  }
}

TEST(Utf8, CodePointsSurviveTheRoundTrip) {
  for (char32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 997) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    EXPECT_EQ(valid_utf8_prefix(text), text.size());
    EXPECT_EQ(decode_utf8(text), c);
  }
}

TEST(ByteLevel, EveryByteHasASpellingOfItsOwn) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte)
    bytes += static_cast<char>(byte);
  EXPECT_EQ(byte_level_bytes(byte_level_spelling(bytes)), bytes);
  EXPECT_EQ(byte_spelling(' '), "Ġ");
  EXPECT_EQ(byte_spelling('\n'), "Ċ");
  EXPECT_EQ(byte_level_bytes("<｜User｜>"), std::nullopt);
}

}  // namespace
}  // namespace di::text
