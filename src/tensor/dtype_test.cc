#include "tensor/dtype.h"

#include <gtest/gtest.h>

namespace di {
namespace {

TEST(DType, EveryNameReadsBackAndHasASize) {
  for (int i = 0; i <= static_cast<int>(DType::kF8E8M0); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype) << name_of(dtype);
    EXPECT_GE(size_of(dtype), 1);
  }
  EXPECT_FALSE(dtype_from_name("bf16").has_value());
  EXPECT_EQ(size_of(DType::kBf16), 2);
}

}  // namespace
}  // namespace di
