// Merging against the definition, on random merges and words.
#include "text/bpe.h"

#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace di::text {
namespace {

std::array<int32_t, 256> bytes_as_tokens() {
  std::array<int32_t, 256> tokens{};
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

std::vector<int32_t> encode(const std::vector<Merge>& merges, std::string_view word) {
  const Bpe bpe(bytes_as_tokens(), merges);
  Bpe::Scratch scratch;
  std::vector<int32_t> ids;
  bpe.encode(word, scratch, ids);
  return ids;
}

/// The definition: merge the leftmost pair of the lowest rank until no pair is left.
std::vector<int32_t> encode_literally(const std::vector<Merge>& merges, std::string_view word) {
  std::vector<int32_t> ids;
  for (const char byte : word)
    ids.push_back(static_cast<uint8_t>(byte));
  const auto merge_first = [&](const Merge& merge) {
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      if (ids[i] != merge.left || ids[i + 1] != merge.right) continue;
      ids[i] = merge.result;
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      return true;
    }
    return false;
  };
  for (std::size_t rank = 0; rank < merges.size();) {
    rank = merge_first(merges[rank]) ? 0 : rank + 1;
  }
  return ids;
}

/// Merges among few tokens, so that words meet many of them; their order is as bad as it can be.
std::vector<Merge> random_merges(std::mt19937& random) {
  std::vector<int32_t> tokens = {'a', 'b', 'c'};
  std::set<std::pair<int32_t, int32_t>> seen;
  std::vector<Merge> merges;
  for (int32_t next = 256; next < 276; ++next) {
    const int32_t left = tokens[random() % tokens.size()];
    const int32_t right = tokens[random() % tokens.size()];
    if (!seen.emplace(left, right).second) continue;
    merges.push_back({left, right, next});
    tokens.push_back(next);
  }
  std::shuffle(merges.begin(), merges.end(), random);
  return merges;
}

TEST(Bpe, MergesTheLowestRankFirstAndTheLeftmostOfEquals) {
  const std::vector<Merge> merges = {{'a', 'a', 256}, {256, 'b', 257}};
  EXPECT_EQ(encode(merges, "aaab"), (std::vector<int32_t>{256, 'a', 'b'}));
  EXPECT_EQ(encode(merges, "aab"), (std::vector<int32_t>{257}));
  EXPECT_EQ(encode(merges, ""), std::vector<int32_t>{});
}

TEST(Bpe, EqualsItsDefinitionOnRandomMerges) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    const auto merges = random_merges(random);
    std::string word;
    for (std::size_t n = random() % 60; n > 0; --n)
      word += "abc"[random() % 3];
    ASSERT_EQ(encode(merges, word), encode_literally(merges, word)) << word;
  }
}

}  // namespace
}  // namespace di::text
