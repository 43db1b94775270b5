#include "text/stop_strings.h"

#include <random>

#include <gtest/gtest.h>

#include "base/error.h"

namespace di::text {
namespace {

using Strings = std::vector<std::string>;

/// What came out in all, and what ended it.
struct Result {
  std::string text;
  std::optional<std::string> matched;

  bool operator==(const Result&) const = default;
};

/// The rule, word for word: the earliest end of any stop string, and the longest that ends there.
Result searched(const Strings& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    Result result;
    for (const std::string& stop : stops) {
      const std::string_view read = std::string_view(text).substr(0, end);
      if (!read.ends_with(stop)) continue;
      if (result.matched && result.matched->size() >= stop.size()) continue;
      result = {text.substr(0, end - stop.size()), stop};
    }
    if (result.matched) return result;
  }
  return {text, std::nullopt};
}

/// Whether a stop string that is not complete in `read` may begin among its first `released` bytes.
bool may_begin_in(const Strings& stops, std::string_view read, std::size_t released) {
  for (std::size_t begin = 0; begin < released; ++begin) {
    for (const std::string& stop : stops) {
      if (stop.starts_with(read.substr(begin))) return true;
    }
  }
  return false;
}

/// Pushes `text` in pieces that end where `ends` has a one.
Result streamed(const Strings& stops, const std::string& text, uint64_t ends) {
  StopStrings stream(stops);
  Result result;
  std::size_t begin = 0;
  for (std::size_t at = 1; at <= text.size(); ++at) {
    if (at < text.size() && (ends >> (at - 1) & 1) == 0) continue;
    result.text += stream.push(std::string_view(text).substr(begin, at - begin));
    if (!stream.matched()) {
      EXPECT_FALSE(may_begin_in(stops, text.substr(0, at), result.text.size())) << text;
    }
    begin = at;
  }
  result.text += stream.flush();
  result.matched = stream.matched();
  return result;
}

TEST(StopStrings, LetTextWithoutStopStringsThrough) {
  EXPECT_EQ(streamed({}, "any text", 0b1010), (Result{"any text", std::nullopt}));
  EXPECT_EQ(streamed({"STOP"}, "any text", 0b1010), (Result{"any text", std::nullopt}));
}

TEST(StopStrings, HoldBackWhatMayBecomeOne) {
  StopStrings stream({"\n\nUser:"});
  EXPECT_EQ(stream.push("Hello\n"), "Hello");
  EXPECT_EQ(stream.push("\nUs"), "");
  EXPECT_EQ(stream.push("ual"), "\n\nUsual");
  EXPECT_EQ(stream.push("\n\nUser: more"), "");
  EXPECT_EQ(stream.matched(), "\n\nUser:");
  EXPECT_EQ(stream.push("dropped"), "");
  EXPECT_EQ(stream.flush(), "");
}

TEST(StopStrings, GiveBackAtTheEndWhatNeverBecameOne) {
  StopStrings stream({"STOP"});
  EXPECT_EQ(stream.push("do not STO"), "do not ");
  EXPECT_EQ(stream.flush(), "STO");
  EXPECT_EQ(stream.matched(), std::nullopt);
}

TEST(StopStrings, EndAtTheFirstThatIsComplete) {
  EXPECT_EQ(streamed({"abcd", "bc"}, "xabcd", 0), (Result{"xa", "bc"}));
  EXPECT_EQ(streamed({"bc", "abcd"}, "xabcd", ~0ULL), (Result{"xa", "bc"}));
}

TEST(StopStrings, TakeTheLongestOfThoseThatEndTogether) {
  EXPECT_EQ(streamed({"c", "abc", "bc"}, "xabc", 0), (Result{"x", "abc"}));
  EXPECT_EQ(streamed({"c", "abc", "bc"}, "xabc", ~0ULL), (Result{"x", "abc"}));
}

TEST(StopStrings, RefuseAnEmptyOne) {
  EXPECT_THROW(StopStrings({"a", ""}), Error);
}

TEST(StopStrings, GiveTheSameForEveryWayToCutTheText) {
  for (const Strings& stops :
       {Strings{"aab"}, Strings{"abab", "ba"}, Strings{"aba", "bb", "a b"}}) {
    for (const char* text : {"aaaab a", "ababab", "a babba", "xaabaab", "\xc3\xa9"}) {
      const Result expected = searched(stops, text);
      for (uint64_t ends = 0; ends < uint64_t{1} << (std::string(text).size() - 1); ++ends)
        ASSERT_EQ(streamed(stops, text, ends), expected) << text << " " << ends;
    }
  }
}

TEST(StopStrings, AgreeWithASearchOnRandomText) {
  std::mt19937_64 random(12);
  const auto random_text = [&](std::size_t size) {
    std::string text(size, 'a');
    for (char& byte : text)
      byte = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 20000; ++i) {
    Strings stops(random() % 5);
    for (std::string& stop : stops)
      stop = random_text(1 + random() % 7);
    const std::string text = random_text(random() % 40);
    ASSERT_EQ(streamed(stops, text, random() & random()), searched(stops, text)) << text;
  }
}

}  // namespace
}  // namespace di::text
