#include "base/math.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace di {
namespace {

TEST(Math, CheckedArithmeticReportsEveryOverflow) {
  EXPECT_EQ(checked_mul(1 << 20, 1 << 20), int64_t{1} << 40);
  EXPECT_EQ(checked_mul(INT64_MAX, 1), INT64_MAX);
  EXPECT_FALSE(checked_mul(INT64_MAX / 2 + 1, 2).has_value());
  EXPECT_FALSE(checked_mul(INT64_MIN, -1).has_value());
  EXPECT_EQ(checked_add(INT64_MAX - 1, 1), INT64_MAX);
  EXPECT_FALSE(checked_add(INT64_MAX, 1).has_value());
}

TEST(Math, RoundsUpToWholeUnits) {
  EXPECT_EQ(ceil_div(0, 32), 0);
  EXPECT_EQ(ceil_div(1, 32), 1);
  EXPECT_EQ(ceil_div(64, 32), 2);
  EXPECT_EQ(align_up(65, 32), 96);
}

}  // namespace
}  // namespace di
