// The scalar functions of ops/canonical.h in device code: evaluated in double and rounded once to
// fp32, in the same order of operations.
#pragma once

#include <cstdint>

namespace di::ops::cuda {

__device__ inline float exp_f32(float x) {
  return static_cast<float>(exp(static_cast<double>(x)));
}

__device__ inline float sigmoid_f32(float x) {
  return static_cast<float>(1.0 / (1.0 + exp(-static_cast<double>(x))));
}

__device__ inline float sqrt_f32(float x) {
  return static_cast<float>(sqrt(static_cast<double>(x)));
}

/// 1 / √(sum / width + eps) for a sum of squares; the mean is rounded to fp32.
__device__ inline float inverse_rms_of_sum(double sum, int64_t width, float eps) {
  const auto mean = static_cast<float>(sum / static_cast<double>(width));
  return static_cast<float>(1.0 / sqrt(static_cast<double>(mean + eps)));
}

/// Cosine and sine of the rotary angle fl32(position · frequency); x is the cosine.
__device__ inline float2 rotation(int64_t position, float frequency, bool inverse) {
  const float angle = static_cast<float>(position) * frequency;
  double sine = 0;
  double cosine = 0;
  sincos(static_cast<double>(angle), &sine, &cosine);
  const auto rounded = static_cast<float>(sine);
  return {static_cast<float>(cosine), inverse ? -rounded : rounded};
}

}  // namespace di::ops::cuda
