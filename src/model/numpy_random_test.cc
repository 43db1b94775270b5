// Known answers of numpy.random.default_rng(seed).integers(0, bound).
#include "model/numpy_random.h"

#include <vector>

#include <gtest/gtest.h>

namespace di::model {
namespace {

std::vector<uint64_t> draw(uint32_t seed, uint64_t bound, int count) {
  NumpyRandom random(seed);
  std::vector<uint64_t> values;
  for (int i = 0; i < count; ++i)
    values.push_back(random.below(bound));
  return values;
}

using Values = std::vector<uint64_t>;

TEST(NumpyRandom, DrawsWhatNumpyDraws) {
  constexpr uint64_t kBound = 46539438283891;
  EXPECT_EQ(
      draw(0, kBound, 4), (Values{29643839136299, 12555722115027, 1906884788502, 769186873658})
  );
  EXPECT_EQ(
      draw(10007, kBound, 4),
      (Values{38316048023122, 2419938046656, 17979836159674, 36993668729195})
  );
  EXPECT_EQ(draw(1, uint64_t{1} << 40, 3), (Values{562753827705, 1045045885889, 158505170440}));
}

// A quarter of the 64-bit draws is thrown away at this bound.
TEST(NumpyRandom, RejectsDrawsThatWouldBeUneven) {
  constexpr uint64_t kBound = uint64_t{3} << 61;
  EXPECT_EQ(
      draw(1, kBound, 4),
      (Values{3540540945838446047, 6574860209053695782, 997228305601562956, 6562310087627549166})
  );
  EXPECT_EQ(
      draw(140098, kBound, 4),
      (Values{5032645657331165286, 3828231650637276238, 6140178293182765499, 3743281403720626725})
  );
}

}  // namespace
}  // namespace di::model
