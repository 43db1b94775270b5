// The scalar functions of the canonical arithmetic: evaluated in double, rounded once to fp32
// (docs/numerics.md, "Scalars"). Header-only so that every backend shares one definition.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tensor/number_formats.h"

namespace di::ops {

inline float exp_f32(float x) {
  return static_cast<float>(std::exp(static_cast<double>(x)));
}

inline float sigmoid_f32(float x) {
  return static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(x))));
}

inline float silu_f32(float x) {
  const double wide = x;
  return static_cast<float>(wide / (1.0 + std::exp(-wide)));
}

/// A bf16 result times Linear::y_factor.
inline bf16 times_factor(bf16 y, float factor) {
  return factor == 1.0f ? y : to_bf16(to_float(y) * factor);
}

/// √softplus(x): softplus is linear above 20 and rounded to fp32 before the root.
inline float sqrt_softplus_f32(float x) {
  const double wide = x;
  const auto softplus = static_cast<float>(wide > 20.0 ? wide : std::log1p(std::exp(wide)));
  return static_cast<float>(std::sqrt(static_cast<double>(softplus)));
}

inline float sqrt_f32(float x) {
  return static_cast<float>(std::sqrt(static_cast<double>(x)));
}

/// Σ term(i) in double, in the order of long sums over one row: 16 partial sums, term i in number
/// i mod 16, folded in halves. A single chain would bind every row to the latency of an addition.
template <class Term>
double interleaved_sum(int64_t count, const Term& term) {
  double partial[16] = {};
  for (int64_t i = 0; i < count; ++i)
    partial[i % 16] += term(i);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i)
      partial[i] += partial[i + half];
  }
  return partial[0];
}

/// 1 / √(sum / width + eps) for a sum of squares; the mean is rounded to fp32.
inline float inverse_rms_of_sum(double sum, int64_t width, float eps) {
  const auto mean = static_cast<float>(sum / static_cast<double>(width));
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(mean + eps)));
}

/// Squares rounded to fp32, summed in double.
inline double sum_of_squares(const bf16* x, int64_t width) {
  return interleaved_sum(width, [x](int64_t i) {
    const float value = to_float(x[i]);
    return value * value;
  });
}

/// 1 / √(mean of squares + eps).
inline float inverse_rms(const bf16* x, int64_t width, float eps) {
  return inverse_rms_of_sum(sum_of_squares(x, width), width, eps);
}

/// What the Engram gate needs to know of a stream and its key.
struct EngramSums {
  double dot;          ///< Σ h · (q · k) · key
  double h_squares;    ///< Σ h²
  double key_squares;  ///< Σ key²
};

/// γ = σ(copysign(√max(|g|, 1e-6), g)), g = dot · (rms(h)⁻¹ · rms(key)⁻¹) · width^(−1/2), every
/// step rounded to fp32.
inline float engram_gate_of(const EngramSums& sums, int64_t width) {
  constexpr float kEps = 1e-20f;
  constexpr float kSmallestGate = 1e-6f;
  const auto root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
  const float h = inverse_rms_of_sum(sums.h_squares, width, kEps);
  const float key = inverse_rms_of_sum(sums.key_squares, width, kEps);
  const float g = static_cast<float>(sums.dot) * (h * key) * root;
  return sigmoid_f32(std::copysign(sqrt_f32(std::max(std::fabs(g), kSmallestGate)), g));
}

/// Cosine and sine of a rotary angle.
struct Rotation {
  float cosine;
  float sine;
};

/// The angle fl32(position · frequency); the sine of the inverse rotation is negated.
inline Rotation rotation(int64_t position, float frequency, bool inverse) {
  const float angle = static_cast<float>(position) * frequency;
  const auto sine = static_cast<float>(std::sin(static_cast<double>(angle)));
  return {static_cast<float>(std::cos(static_cast<double>(angle))), inverse ? -sine : sine};
}

/// The E8M0 scale of a Q8 group whose largest magnitude is `amax`:
/// 2^⌈log2(max(amax, 1e-4) · fl32(1/448))⌉.
inline uint8_t q8_scale(float amax) {
  return e8m0_ceil(std::max(amax, 1e-4f) * (1.0f / 448.0f));
}

/// The E8M0 scale of a Q4m group: 2^⌈log2(max(amax, 6 · 2^-126) · fl32(1/6))⌉.
inline uint8_t q4m_scale(float amax) {
  return e8m0_ceil(std::max(amax, 0x1.8p-124f) * (1.0f / 6.0f));
}

/// The E4M3 scale of a Q4n group: e4m3(max(amax, 6 · 2^-9) / 6).
inline uint8_t q4n_scale(float amax) {
  return encode_e4m3(std::max(amax, 0x1.8p-7f) / 6.0f);
}

/// max |x[i]|.
inline float largest_magnitude(const bf16* x, int64_t width) {
  float amax = 0;
  for (int64_t i = 0; i < width; ++i)
    amax = std::max(amax, std::fabs(to_float(x[i])));
  return amax;
}

/// E2M1 codes of x / scale, two a byte, for an even width.
inline void encode_e2m1_pairs(const bf16* x, int64_t width, float scale, uint8_t* codes) {
  for (int64_t i = 0; i < width / 2; ++i) {
    const uint8_t even = encode_e2m1(to_float(x[2 * i]) / scale);
    const uint8_t odd = encode_e2m1(to_float(x[2 * i + 1]) / scale);
    codes[i] = static_cast<uint8_t>(even | odd << 4);
  }
}

/// Q8 of one group: codes e4m3(x / scale) of x[0..width), returns the E8M0 scale.
inline uint8_t quantize_q8_group(const bf16* x, int64_t width, uint8_t* codes) {
  const uint8_t scale = q8_scale(largest_magnitude(x, width));
  const float value = decode_e8m0(scale);
  for (int64_t i = 0; i < width; ++i)
    codes[i] = encode_e4m3(to_float(x[i]) / value);
  return scale;
}

/// Q4m of one group of 32: writes 16 bytes of codes, returns the E8M0 scale.
inline uint8_t quantize_q4m_group(const bf16* x, uint8_t* codes) {
  const uint8_t scale = q4m_scale(largest_magnitude(x, 32));
  encode_e2m1_pairs(x, 32, decode_e8m0(scale), codes);
  return scale;
}

/// Q4n of one group of 16: writes 8 bytes of codes, returns the E4M3 scale.
inline uint8_t quantize_q4n_group(const bf16* x, uint8_t* codes) {
  const uint8_t scale = q4n_scale(largest_magnitude(x, 16));
  encode_e2m1_pairs(x, 16, decode_e4m3(scale), codes);
  return scale;
}

}  // namespace di::ops
