// The hash of the n-gram memory: the constants of the release, and what a position looks up.
#include "model/engram_hash.h"

#include <numeric>

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/known_models.h"

namespace di::model {
namespace {

using Values = std::vector<int64_t>;

/// Deals `size` tokens to `classes` classes in turn.
std::vector<int32_t> dealt(int64_t size, int64_t classes) {
  std::vector<int32_t> map;
  for (int64_t id = 0; id < size; ++id)
    map.push_back(static_cast<int32_t>(id % classes));
  return map;
}

ModelConfig release() {
  return v41_flash_config();
}

EngramHasher release_hasher() {
  const ModelConfig config = release();
  return {config, dealt(config.vocab_size, config.engram.engram_compressed_vocab_size)};
}

TEST(EngramHasher, MultipliersOfTheReleaseAreTheKnownOnes) {
  const EngramHasher hasher = release_hasher();
  ASSERT_EQ(hasher.layers().size(), 2);
  EXPECT_EQ(
      hasher.layers()[0].multipliers,
      (Values{76632096046245, 4839876093313, 35959672319349, 73987337458391})
  );
  EXPECT_EQ(
      hasher.layers()[1].multipliers,
      (Values{67716810739261, 51510806800915, 30921347202721, 82619226485591})
  );
}

TEST(EngramHasher, PrimesOfTheReleaseAreTheKnownOnes) {
  const EngramHasher hasher = release_hasher();
  const Values first = {16000057, 16000079, 16000081, 16000097, 16000121, 16000129,
                        16000133, 16000183, 16000189, 16000207, 16000211, 16000253,
                        16000277, 16000289, 16000307, 16000321, 16000339, 16000381,
                        16000393, 16000399, 16000403, 16000409, 16000447, 16000463};
  const Values second = {16000477, 16000487, 16000499, 16000507, 16000511, 16000573,
                         16000609, 16000627, 16000667, 16000669, 16000693, 16000697,
                         16000711, 16000729, 16000759, 16000769, 16000781, 16000799,
                         16000813, 16000819, 16000841, 16000877, 16000879, 16000889};
  EXPECT_EQ(hasher.layers()[0].primes, first);
  EXPECT_EQ(hasher.layers()[1].primes, second);
}

TEST(EngramHasher, OffsetsAreThePrimesBefore) {
  const EngramHasher hasher = release_hasher();
  for (const EngramHash& hash : hasher.layers()) {
    Values sums(hash.primes.size());
    std::exclusive_scan(hash.primes.begin(), hash.primes.end(), sums.begin(), int64_t{0});
    EXPECT_EQ(hash.offsets, sums);
  }
}

TEST(EngramHasher, FilesThatContradictEachOtherAreRefused) {
  ModelConfig config = release();
  const int64_t classes = config.engram.engram_compressed_vocab_size;
  EXPECT_THROW(EngramHasher(config, dealt(config.vocab_size, classes - 1)), Error);
  ++config.engram.engram_num_embeddings[1];
  EXPECT_THROW(EngramHasher(config, dealt(config.vocab_size, classes)), Error);
}

/// Two orders with one head each, small enough to work out by hand.
const EngramHash kSmall{{3, 5, 7}, {11, 13}, {0, 11}};
constexpr int64_t kPad = 2;

Values rows_of(std::vector<int32_t> newest_first) {
  Values rows(2);
  kSmall.rows(newest_first, kPad, rows.data());
  return rows;
}

TEST(EngramHash, MixesTheNewestTokensByExclusiveOr) {
  const int64_t two = 9 * 3 ^ 8 * 5;
  const int64_t three = two ^ 6 * 7;
  EXPECT_EQ(rows_of({9, 8, 6}), (Values{two % 11, three % 13 + 11}));
}

TEST(EngramHash, TokensBeforeTheSequenceReadAsPad) {
  EXPECT_EQ(rows_of({9}), rows_of({9, kPad, kPad}));
  EXPECT_EQ(rows_of({9, 8}), rows_of({9, 8, kPad}));
}

TEST(EngramHash, NothingBehindAnImageIsSeen) {
  EXPECT_EQ(rows_of({9, kDeadToken, 6}), rows_of({9}));
  EXPECT_EQ(rows_of({9, 8, kDeadToken}), rows_of({9, 8}));
  EXPECT_EQ(rows_of({kDeadToken, 8, 6}), rows_of({kPad, kPad, kPad}));
}

}  // namespace
}  // namespace di::model
