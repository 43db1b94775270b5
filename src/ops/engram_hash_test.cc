// What a position looks up in the n-gram memory, on a hash small enough to work out by hand: two
// orders with one head each.
#include <gtest/gtest.h>

#include "ops/ops.h"

namespace di::ops {
namespace {

using Values = std::vector<int64_t>;

constexpr int32_t kImage = -1;
constexpr int32_t kPad = 2;

/// The lookups of the last of `tokens`, which are their own compressed ids.
Values lookups_of(std::vector<int32_t> tokens) {
  const std::vector<int32_t> token_map = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const Values multipliers = {3, 5, 7}, primes = {11, 13}, offsets = {0, 11};
  std::vector<uint8_t> is_image;
  for (int32_t& token : tokens) {
    is_image.push_back(token == kImage ? 1 : 0);
    token = std::max(token, 0);
  }
  const std::vector<int64_t> positions = {std::ssize(tokens) - 1};
  const std::vector<int32_t> sequence_of = {0};
  const std::vector<SequenceRows> sequences = {
      {.first_row = 0,
       .num_rows = 1,
       .start = positions[0],
       .tokens = tokens.data(),
       .is_image = is_image.data()}};
  Values ids(2);
  ThreadPool pool(1);
  Arena scratch;
  Exec exec{pool, scratch};
  ref_ops().engram_hash(
      exec,
      {.ids = View<int64_t, 2>(ids.data(), 1, 2),
       .token_map = View<const int32_t, 1>(token_map.data(), 10),
       .multipliers = View<const int64_t, 1>(multipliers.data(), 3),
       .primes = View<const int64_t, 1>(primes.data(), 2),
       .offsets = View<const int64_t, 1>(offsets.data(), 2),
       .pad = kPad,
       .rows =
           {.sequences = sequences,
            .sequence_of = View<const int32_t, 1>(sequence_of.data(), 1),
            .positions = View<const int64_t, 1>(positions.data(), 1),
            .max_length = std::ssize(tokens)}}
  );
  return ids;
}

TEST(EngramHash, MixesTheNewestTokensByExclusiveOr) {
  const int64_t two = 9 * 3 ^ 8 * 5;
  const int64_t three = two ^ 6 * 7;
  EXPECT_EQ(lookups_of({6, 8, 9}), (Values{two % 11, three % 13 + 11}));
}

TEST(EngramHash, TokensBeforeTheSequenceReadAsPad) {
  EXPECT_EQ(lookups_of({9}), lookups_of({kPad, kPad, 9}));
  EXPECT_EQ(lookups_of({8, 9}), lookups_of({kPad, 8, 9}));
}

TEST(EngramHash, NothingBehindAnImageIsSeen) {
  EXPECT_EQ(lookups_of({6, kImage, 9}), lookups_of({9}));
  EXPECT_EQ(lookups_of({kImage, 8, 9}), lookups_of({8, 9}));
  EXPECT_EQ(lookups_of({6, 8, kImage}), lookups_of({kPad, kPad, kPad}));
}

}  // namespace
}  // namespace di::ops
