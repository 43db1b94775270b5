// The number formats of the checkpoint and the caches, one value at a time. Bit by bit
// descriptions: docs/numerics.md. These are the definitions that every faster conversion answers
// to.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace di {

/// bfloat16: the upper half of an fp32.
struct bf16 {
  uint16_t bits;
  bool operator==(const bf16&) const = default;
};

constexpr float to_float(bf16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}

/// Rounds to nearest, ties to even. NaN stays a (quiet) NaN.
inline bf16 to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}

/// An fp32 that went through bf16.
inline float round_bf16(float x) {
  return to_float(to_bf16(x));
}

/// E8M0: 2^(code − 127); 255 is NaN.
inline float decode_e8m0(uint8_t code) {
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  if (code == 0) return std::bit_cast<float>(0x00400000u);  // 2^-127, a subnormal
  return std::bit_cast<float>(uint32_t{code} << 23);
}

/// The value of each E4M3 code (OCP "fn"): sign, 4 exponent bits with bias 7, 3 mantissa bits; 0x7f
/// and 0xff are NaN; at most 448, no infinities.
inline constexpr std::array<float, 256> kE4m3Values = [] {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15;
    const int mantissa = code & 7;
    float magnitude = static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa) / 512.0f;
    for (int e = 1; e < exponent; ++e)
      magnitude *= 2;
    if ((code & 0x7f) == 0x7f) magnitude = std::numeric_limits<float>::quiet_NaN();
    values[static_cast<std::size_t>(code)] = (code & 0x80) != 0 ? -magnitude : magnitude;
  }
  return values;
}();

inline float decode_e4m3(uint8_t code) {
  return kE4m3Values[code];
}

/// E2M1: sign and one of {0, 0.5, 1, 1.5, 2, 3, 4, 6}.
inline float decode_e2m1(uint8_t code) {
  constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float magnitude = kMagnitudes[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

/// Rounds to the nearest E4M3, ties to even, saturating at ±448. The sign of zero is kept.
inline uint8_t encode_e4m3(float x) {
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  const float magnitude = std::fabs(x);
  if (std::isnan(x)) return static_cast<uint8_t>(sign | 0x7f);
  if (magnitude >= 448.0f) return static_cast<uint8_t>(sign | 0x7e);
  if (magnitude < 0.015625f) {  // below 2^-6: multiples of 2^-9
    return static_cast<uint8_t>(sign | static_cast<uint8_t>(std::nearbyint(magnitude * 512.0f)));
  }
  const auto bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = bits + 0x7ffffu + (bits >> 20 & 1);  // keep 3 of 23 mantissa bits
  return static_cast<uint8_t>(sign | ((rounded >> 20) - ((127 - 7) << 3)));
}

/// Rounds to the nearest E2M1, ties to the even code, saturating at ±6. The sign of zero is kept.
inline uint8_t encode_e2m1(float x) {
  constexpr float kTies[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const float magnitude = std::fabs(x);
  uint8_t code = 0;
  for (uint8_t step = 0; step < 7; ++step) {
    const bool up_on_tie = (step & 1) != 0;  // from an odd code the even one lies above
    if (magnitude > kTies[step] || (up_on_tie && magnitude == kTies[step])) {
      code = static_cast<uint8_t>(step + 1);
    }
  }
  return static_cast<uint8_t>(code | (std::signbit(x) ? 8 : 0));
}

/// The E8M0 code of 2^⌈log2 x⌉ for a positive normal fp32.
inline uint8_t e8m0_ceil(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1 : 0));
}

/// Two E2M1 codes share a byte: the even column in the low nibble.
inline uint8_t nibble(const uint8_t* codes, int64_t column) {
  return static_cast<uint8_t>(codes[column / 2] >> (column % 2 * 4) & 15);
}

}  // namespace di
