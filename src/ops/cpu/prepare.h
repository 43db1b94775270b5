// Quantised activation rows in the forms that the kernels multiply (kernels.h). For the files in
// avx2/, avx512/, ... only: plain loops that the compiler turns into each instruction set's
// vectors.
#pragma once

#include <cstring>

#include "ops/cpu/kernels.h"

namespace di::ops::cpu {
namespace {

inline constexpr int kBlockColumns = 32;

/// Every E4M3 value as an integer in units of 2^-9, the smallest subnormal. NaN codes count as 0.
struct FixedPointTable {
  int32_t of[256];
};
constexpr FixedPointTable make_fixed_point_table() {
  FixedPointTable table{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15;
    const int mantissa = code & 7;
    const int magnitude = exponent == 0 ? mantissa : (8 + mantissa) << (exponent - 1);
    const bool nan = (code & 0x7f) == 0x7f;
    table.of[code] = nan ? 0 : (code & 0x80) != 0 ? -magnitude : magnitude;
  }
  return table;
}
constexpr FixedPointTable kFixedPoint = make_fixed_point_table();

/// The kernel adds 128 to each of the three 7-bit digits of an FP8 weight.
inline constexpr uint32_t kFp8Added = 128u * (1u + (1u << 7) + (1u << 14));

/// Two digits hold ±448 in units of 2^-(2 · bits − 10).
template <int bits>
void make_digits(const int32_t* fixed, float scale, DigitBlock& out) {
  constexpr int kDrop = 19 - 2 * bits;  // low bits that must be zero for two digits
  int32_t any = 0;
  for (int i = 0; i < kBlockColumns; ++i)
    any |= fixed[i];
  const bool fine = (any & ((1 << kDrop) - 1)) != 0;
  const int shift = fine ? 0 : kDrop;
  constexpr int32_t kHalf = 1 << (bits - 1);
  constexpr int32_t kMask = (1 << bits) - 1;
  int32_t sum = 0;
  int32_t digit_sum[3] = {};
  for (int i = 0; i < kBlockColumns; ++i) {
    const int32_t v = fixed[i] >> shift;
    const int32_t low = ((v + kHalf) & kMask) - kHalf;
    const int32_t rest = (v - low) >> bits;
    const int32_t middle = ((rest + kHalf) & kMask) - kHalf;
    const int32_t high = (rest - middle) >> bits;
    out.digits[0][i] = static_cast<int8_t>(low);
    out.digits[1][i] = static_cast<int8_t>(middle);
    out.digits[2][i] = static_cast<int8_t>(high);
    sum += v;
    digit_sum[0] += low;
    digit_sum[1] += middle;
    digit_sum[2] += high;
  }
  out.planes = fine ? 3 : 2;
  out.fp4_offset = -12 * sum;
  for (int p = 0; p < 3; ++p)  // modulo 2^32, like the kernel's sums; only their total fits
    out.fp8_offset[p] = static_cast<int32_t>(0u - kFp8Added * static_cast<uint32_t>(digit_sum[p]));
  const float unit = static_cast<float>(1 << shift);
  out.fp4_scale = 0x1p-10f * unit * scale;  // exact: at least 2^-137, a subnormal fp32
  out.fp8_scale = 0x1p-18f * unit * scale;
}

inline void make_words(const int32_t* fixed, float scale, WordBlock& out) {
  for (int i = 0; i < kBlockColumns; ++i) {
    const int32_t low = ((fixed[i] + 256) & 511) - 256;
    out.digits[0][i] = static_cast<int16_t>(low);
    out.digits[1][i] = static_cast<int16_t>((fixed[i] - low) >> 9);
  }
  out.scale = 0x1p-18f * scale;
}

inline void make_doubles(const int32_t* fixed, float scale, DoubleBlock& out) {
  for (int i = 0; i < kBlockColumns; ++i)
    out.values[i] = 0x1p991 * fixed[i];
  out.scale = scale;
}

/// 2^(code − 127) as fp32; 2^-127 is a subnormal.
inline float e8m0(uint8_t code) {
  const uint32_t bits = code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Kernels::prepare with digits of `bits` bits.
template <int bits>
void prepare_blocks(
    Q8Form form, const uint8_t* codes, const uint8_t* scales, int64_t cols, std::byte* out
) {
  for (int64_t block = 0; block < cols / kBlockColumns; ++block) {
    int32_t fixed[kBlockColumns];
    for (int i = 0; i < kBlockColumns; ++i)
      fixed[i] = kFixedPoint.of[codes[block * kBlockColumns + i]];
    const float scale = e8m0(scales[block]);
    switch (form) {
      case Q8Form::kDigits:
        make_digits<bits>(fixed, scale, reinterpret_cast<DigitBlock*>(out)[block]);
        break;
      case Q8Form::kWords:
        make_words(fixed, scale, reinterpret_cast<WordBlock*>(out)[block]);
        break;
      case Q8Form::kDoubles:
        make_doubles(fixed, scale, reinterpret_cast<DoubleBlock*>(out)[block]);
        break;
    }
  }
}

}  // namespace
}  // namespace di::ops::cpu
