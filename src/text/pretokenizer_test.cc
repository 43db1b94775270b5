// The dialect of patterns and the cascade of splits.
#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace di::text {
namespace {

std::vector<std::string_view> words_of(
    const std::vector<std::string>& patterns, std::string_view text
) {
  const Pretokenizer pretokenizer(patterns, "test");
  Regex::Scratch scratch;
  std::vector<std::string_view> words;
  pretokenizer.split(text, scratch, words);
  return words;
}

using Words = std::vector<std::string_view>;

TEST(Pretokenizer, MatchesAndTheTextBetweenThemAreWords) {
  EXPECT_EQ(words_of({"[0-9]+"}, "ab12cd3"), (Words{"ab", "12", "cd", "3"}));
  EXPECT_EQ(words_of({"x"}, ""), Words{});
}

TEST(Pretokenizer, LaterSplitsSeeOnePieceAtATime) {
  // The second pattern's lookahead meets the end of its piece, not the digit behind it.
  EXPECT_EQ(words_of({"[0-9]+", " +(?! )|."}, "a  5"), (Words{"a", "  ", "5"}));
}

TEST(Pretokenizer, AnEmptyMatchCutsAndTheSearchGoesOn) {
  EXPECT_EQ(words_of({"(?=b)"}, "abäb"), (Words{"a", "bä", "b"}));
}

TEST(Regex, SpaceMeansWhiteSpaceExactly) {
  EXPECT_EQ(
      words_of({"\\s+"}, "a\u0085\u00A0\u3000b\u180E\u200Bc"),
      (Words{"a", "\u0085\u00A0\u3000", "b\u180E\u200Bc"})
  );
  EXPECT_EQ(words_of({"[\\s-]+"}, "a \u2028-b"), (Words{"a", " \u2028-", "b"}));
  EXPECT_EQ(words_of({"\\S+"}, " \u180E "), (Words{" ", "\u180E", " "}));
}

TEST(Regex, CategoriesFollowUnicode16) {
  // A letter, a mark, a digit and two symbols that came after Unicode 14.
  EXPECT_EQ(words_of({"\\p{L}"}, "-\u1C89-"), (Words{"-", "\u1C89", "-"}));
  EXPECT_EQ(words_of({"[\\p{M}x]"}, "-\u0ECE-"), (Words{"-", "\u0ECE", "-"}));
  EXPECT_EQ(words_of({"\\P{N}+"}, "-\U00010D40-"), (Words{"-", "\U00010D40", "-"}));
  EXPECT_EQ(
      words_of({"[^\\p{S}]+"}, "-\U0001FAE8\U0001FAE9-"), (Words{"-", "\U0001FAE8\U0001FAE9", "-"})
  );
}

TEST(Regex, ABrokenPatternIsNamed) {
  EXPECT_THROW(words_of({"(a"}, "a"), Error);
}

TEST(Regex, ARunawayPatternIsStopped) {
  EXPECT_THROW(words_of({"(a|aa)+$"}, std::string(200, 'a') + "b"), Error);
}

}  // namespace
}  // namespace di::text
