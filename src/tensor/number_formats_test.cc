#include "tensor/number_formats.h"

#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

namespace di {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Checks that `encode` rounds to nearest with ties to the even code over the non-negative codes
/// 0 … last, whose values ascend, and that it keeps signs and saturates.
void expect_nearest_even(
    const std::function<uint8_t(float)>& encode,
    const std::function<float(uint8_t)>& decode,
    uint8_t last,
    uint8_t sign
) {
  for (uint8_t code = 0; code <= last; ++code) {
    EXPECT_EQ(encode(decode(code)), code);
    EXPECT_EQ(encode(-decode(code)), code | sign);
    if (code == last) break;
    const auto next = static_cast<uint8_t>(code + 1);
    const float middle = (decode(code) + decode(next)) / 2;  // exact: one more mantissa bit
    EXPECT_EQ(encode(middle), code % 2 == 0 ? code : next);
    EXPECT_EQ(encode(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(encode(std::nextafter(middle, kInfinity)), next);
  }
  EXPECT_EQ(encode(decode(last) * 4), last);
  EXPECT_EQ(encode(-kInfinity), last | sign);
}

TEST(NumberFormats, E4m3RoundsToNearestEvenAndSaturatesAt448) {
  EXPECT_EQ(decode_e4m3(0x7e), 448.0f);
  EXPECT_EQ(decode_e4m3(0x01), 0x1p-9f);
  EXPECT_TRUE(std::isnan(decode_e4m3(0x7f)) && std::isnan(decode_e4m3(0xff)));
  EXPECT_TRUE(std::isnan(decode_e4m3(encode_e4m3(std::nanf("")))));
  expect_nearest_even(encode_e4m3, decode_e4m3, 0x7e, 0x80);
}

TEST(NumberFormats, E2m1RoundsToNearestEvenAndSaturatesAt6) {
  EXPECT_EQ(decode_e2m1(7), 6.0f);
  expect_nearest_even(encode_e2m1, decode_e2m1, 7, 8);
}

TEST(NumberFormats, E8m0IsEveryPowerOfTwoFromMinus127To127) {
  for (int code = 0; code < 255; ++code)
    EXPECT_EQ(decode_e8m0(static_cast<uint8_t>(code)), std::ldexp(1.0f, code - 127));
  EXPECT_TRUE(std::isnan(decode_e8m0(255)));
}

TEST(NumberFormats, TheScaleOfAMaximumIsTheNextPowerOfTwo) {
  for (int exponent = -126; exponent < 127; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    EXPECT_EQ(decode_e8m0(e8m0_ceil(power)), power);
    EXPECT_EQ(decode_e8m0(e8m0_ceil(std::nextafter(power, kInfinity))), 2 * power);
  }
}

TEST(NumberFormats, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(round_bf16(1.0f + 0x1p-8f), 1.0f);                      // tie, even below
  EXPECT_EQ(round_bf16(1.0f + 0x1p-7f + 0x1p-8f), 1.0f + 0x1p-6f);  // tie, even above
  EXPECT_EQ(round_bf16(1.0f + 0x1p-8f + 0x1p-20f), 1.0f + 0x1p-7f);
  EXPECT_EQ(round_bf16(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_TRUE(std::signbit(round_bf16(-0.0f)));
  EXPECT_TRUE(std::isnan(round_bf16(std::bit_cast<float>(0x7f800001u))));
}

TEST(NumberFormats, TheEvenColumnLiesInTheLowNibble) {
  const uint8_t codes[] = {0x21, 0x43};
  for (int64_t column = 0; column < 4; ++column)
    EXPECT_EQ(nibble(codes, column), column + 1);
}

}  // namespace
}  // namespace di
