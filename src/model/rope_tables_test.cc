// Rotary frequencies, plain and stretched.
#include "model/rope_tables.h"

#include <cmath>

#include <gtest/gtest.h>

namespace di::model {
namespace {

constexpr int64_t kRopeDim = 64;
const RopeScaling kRelease{
    .factor = 16, .beta_fast = 32, .beta_slow = 1, .original_max_position_embeddings = 65536};

TEST(RopeTables, BaseFrequenciesFallGeometrically) {
  const std::vector<float> table = base_frequencies(10000, kRopeDim);
  ASSERT_EQ(table.size(), 32);
  EXPECT_EQ(table[0], 1.0f);
  EXPECT_EQ(table[16], 0.01f);
  for (std::size_t i = 0; i < table.size(); ++i) {
    const double exact = std::pow(10000.0, -static_cast<double>(i) / 32);
    EXPECT_NEAR(table[i], exact, 1e-6 * exact) << i;
  }
}

// 32 turns over 65,536 positions are made by the pairs up to 15, one turn by those up to 25 (both
// rounded outwards); between them the blend is a straight line.
TEST(RopeTables, YarnKeepsFastPairsAndStretchesSlowOnes) {
  const std::vector<float> base = base_frequencies(160000, kRopeDim);
  const std::vector<float> yarn = yarn_frequencies(160000, kRopeDim, kRelease);
  for (std::size_t i = 0; i < base.size(); ++i) {
    const double kept = std::clamp((25.0 - static_cast<double>(i)) / 10, 0.0, 1.0);
    const double expected = base[i] * (kept + (1 - kept) / 16);
    EXPECT_NEAR(yarn[i], expected, 1e-6 * expected) << i;
  }
}

TEST(RopeTables, AFactorOfOneChangesNothing) {
  RopeScaling none = kRelease;
  none.factor = 1;
  const std::vector<float> base = base_frequencies(160000, kRopeDim);
  const std::vector<float> yarn = yarn_frequencies(160000, kRopeDim, none);
  for (std::size_t i = 0; i < base.size(); ++i)
    EXPECT_NEAR(yarn[i], base[i], 1e-7 * base[i]) << i;
}

}  // namespace
}  // namespace di::model
