// The hash of the n-gram memory: the constants of the release.
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

std::vector<EngramHash> release_hashes() {
  const ModelConfig config = release();
  return engram_hashes(
      config, dealt(config.vocab_size, config.engram.engram_compressed_vocab_size)
  );
}

TEST(EngramHashes, MultipliersOfTheReleaseAreTheKnownOnes) {
  const std::vector<EngramHash> hashes = release_hashes();
  ASSERT_EQ(hashes.size(), 2);
  EXPECT_EQ(
      hashes[0].multipliers, (Values{76632096046245, 4839876093313, 35959672319349, 73987337458391})
  );
  EXPECT_EQ(
      hashes[1].multipliers,
      (Values{67716810739261, 51510806800915, 30921347202721, 82619226485591})
  );
}

TEST(EngramHashes, PrimesOfTheReleaseAreTheKnownOnes) {
  const std::vector<EngramHash> hashes = release_hashes();
  const Values first = {16000057, 16000079, 16000081, 16000097, 16000121, 16000129,
                        16000133, 16000183, 16000189, 16000207, 16000211, 16000253,
                        16000277, 16000289, 16000307, 16000321, 16000339, 16000381,
                        16000393, 16000399, 16000403, 16000409, 16000447, 16000463};
  const Values second = {16000477, 16000487, 16000499, 16000507, 16000511, 16000573,
                         16000609, 16000627, 16000667, 16000669, 16000693, 16000697,
                         16000711, 16000729, 16000759, 16000769, 16000781, 16000799,
                         16000813, 16000819, 16000841, 16000877, 16000879, 16000889};
  EXPECT_EQ(hashes[0].primes, first);
  EXPECT_EQ(hashes[1].primes, second);
}

TEST(EngramHashes, OffsetsAreThePrimesBefore) {
  const std::vector<EngramHash> hashes = release_hashes();
  for (const EngramHash& hash : hashes) {
    Values sums(hash.primes.size());
    std::exclusive_scan(hash.primes.begin(), hash.primes.end(), sums.begin(), int64_t{0});
    EXPECT_EQ(hash.offsets, sums);
  }
}

TEST(EngramHashes, FilesThatContradictEachOtherAreRefused) {
  ModelConfig config = release();
  const int64_t classes = config.engram.engram_compressed_vocab_size;
  EXPECT_THROW(engram_hashes(config, dealt(config.vocab_size, classes - 1)), Error);
  ++config.engram.engram_num_embeddings[1];
  EXPECT_THROW(engram_hashes(config, dealt(config.vocab_size, classes)), Error);
}

}  // namespace
}  // namespace di::model
