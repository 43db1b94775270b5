// Properties of encoding and decoding; the recorded cases run in verify's tests.
#include "text/tokenizer.h"

#include <chrono>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "base/sha256.h"
#include "text/chat_templates.h"
#include "text/detokenizer.h"
#include "text/test_tokenizer.h"
#include "text/utf8.h"

namespace di::text {
namespace {

using Ids = std::vector<int32_t>;

/// Text with words, digits, marks, blanks, scripts and broken bytes in random order.
std::string random_text(std::mt19937& random) {
  static constexpr std::string_view kParts[] = {
      "hello", " world",  "12345", "\n\n",  "   ",      "\t",         "汉字",     "かな",
      "é",     "e\u0301", "😀",     "don't", "<think>",  "<｜User｜>", "｜DSML｜", "<",
      "｜",    ".",       "!?",    "\xFF",  "\xE6\xB1", "\r\n"};
  std::string text;
  for (std::size_t n = random() % 20; n > 0; --n)
    text += kParts[random() % std::size(kParts)];
  return text;
}

TEST(Tokenizer, FollowsMergesSplitsAndAddedTokens) {
  const Tokenizer tokenizer = small_tokenizer();
  EXPECT_EQ(tokenizer.encode("hello", AddedTokens::kPlain), (Ids{258, 'o'}));
  EXPECT_EQ(tokenizer.encode("he<mark>he", AddedTokens::kRecognised), (Ids{256, 300, 256}));
  EXPECT_EQ(tokenizer.encode("<late><mark>", AddedTokens::kRecognised), (Ids{301, 300}));
  EXPECT_EQ(tokenizer.encode("<mark>", AddedTokens::kPlain).size(), 6u);
  EXPECT_EQ(tokenizer.vocab_size(), 302);
  EXPECT_EQ(tokenizer.id_of("<mark>"), 300);
  EXPECT_EQ(tokenizer.id_of("he"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(300));
  EXPECT_FALSE(tokenizer.is_special(301));
  EXPECT_FALSE(tokenizer.is_special(-1));
}

TEST(Tokenizer, IdsWithoutATokenDecodeToNothing) {
  const Tokenizer tokenizer = small_tokenizer();
  EXPECT_EQ(tokenizer.decode(Ids{256, 280, -5, 100000, 'y'}), "hey");
  EXPECT_EQ(tokenizer.decode(Ids{300, 301, 'a'}), "<mark><late>a");
  EXPECT_EQ(tokenizer.decode_skip_special(Ids{300, 301, 'a'}), "<late>a");
}

TEST(Tokenizer, DecodingGivesTheTextBack) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = random_text(random);
    for (const AddedTokens added : {AddedTokens::kRecognised, AddedTokens::kPlain}) {
      const Ids ids = seedling_tokenizer().encode(text, added);
      ASSERT_EQ(seedling_tokenizer().decode(ids), repaired_utf8(text));
    }
  }
}

TEST(Tokenizer, EveryCodePointIsCutAsTheReferenceCutsIt) {
  // The digest is that of the `tokenizers` package 0.23.3 on the same texts.
  Ids ids;
  for (char32_t first = 0; first < 0x110000; first += 256) {
    std::string text;
    for (char32_t c = first; c < first + 256; ++c) {
      // Few code points from U+34000 on are assigned; some of them will do.
      if ((c >= 0xD800 && c < 0xE000) || (c >= 0x34000 && c % 512 != 0)) continue;
      std::string s;
      append_utf8(s, c);
      text += "a" + s + "b 1" + s + " " + s + s + "\n" + s + ". " + s;
    }
    const Ids more = seedling_tokenizer().encode(text, AddedTokens::kRecognised);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  EXPECT_EQ(ids.size(), 6412366u);
  EXPECT_EQ(
      sha256_hex(std::as_bytes(std::span(ids))),
      "d1ef531c7b00d9d61e09cdd1ff9c87e1b8c3639d4bd747c630556dd913214e0e"
  );
}

TEST(Tokenizer, PlainTextNeverBecomesAnAddedToken) {
  const auto& tokenizer = official_tokenizer();
  std::mt19937 random(4);
  for (int i = 0; i < 500; ++i) {
    for (const int32_t id : tokenizer.encode(random_text(random), AddedTokens::kPlain)) {
      ASSERT_LT(id, 128000);
      ASSERT_GT(id, 2);
    }
  }
  EXPECT_EQ(tokenizer.encode(templates::kUser, AddedTokens::kRecognised).size(), 1u);
}

TEST(Tokenizer, AMegabyteOfOneCharacterTakesNoLongerThanText) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::string_view unit : {"a", " ", "\n", ".", "0", "的", "😀", "\u0301", "<"}) {
    std::string text;
    while (text.size() < (1u << 20))
      text += unit;
    const Ids ids = official_tokenizer().encode(text, AddedTokens::kRecognised);
    EXPECT_EQ(official_tokenizer().decode(ids), text);
  }
  // Far above what it takes, and far below what anything quadratic would.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  const std::string text = "Threads share 1 tokenizer, 没有锁. <think>";
  const Ids expected = seedling_tokenizer().encode(text, AddedTokens::kRecognised);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 200; ++n) {
        ASSERT_EQ(seedling_tokenizer().encode(text, AddedTokens::kRecognised), expected);
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
}

TEST(Detokenizer, PiecesJoinToTheWholeTextAndNeverSplitACharacter) {
  const auto& tokenizer = seedling_tokenizer();
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) {
    Ids ids;
    for (std::size_t n = random() % 30; n > 0; --n) {
      // Single bytes are the first ids, so that broken characters are frequent.
      ids.push_back(static_cast<int32_t>(random() % (random() % 2 ? 300 : 4300)));
    }
    Detokenizer detokenizer(tokenizer);
    std::string joined;
    for (const int32_t id : ids) {
      const std::string piece = detokenizer.push(id);
      ASSERT_EQ(valid_utf8_prefix(piece), piece.size());
      joined += piece;
    }
    joined += detokenizer.flush();
    ASSERT_EQ(joined, tokenizer.decode(ids));
    ASSERT_EQ(detokenizer.held(), 0);
  }
}

}  // namespace
}  // namespace di::text
