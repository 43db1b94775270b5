// The number formats of tensor/number_formats.h and the quantisers of ops/canonical.h in device
// code: the same value for the same input, bit by bit. to_float(bf16) of the former is for both.
#pragma once

#include <cstdint>

#include <cuda_fp8.h>

#include "tensor/number_formats.h"

namespace di::ops::cuda {

/// Rounds to nearest even; NaN stays a quiet NaN.
__device__ inline bf16 to_bf16(float x) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16)};
}

__device__ inline float round_bf16(float x) {
  return to_float(to_bf16(x));
}

/// Two bf16 values in the order of memory.
__device__ inline uint32_t pack_bf16(float low, float high) {
  return uint32_t{to_bf16(low).bits} | uint32_t{to_bf16(high).bits} << 16;
}

/// 2^(code − 127); 255 is NaN.
__device__ inline float decode_e8m0(uint8_t code) {
  const uint32_t bits = code == 255 ? 0x7fc00000u : code == 0 ? 0x00400000u : uint32_t{code} << 23;
  return __uint_as_float(bits);
}

/// Through the exponent of an fp32: the code's seven low bits become exponent and mantissa, and one
/// product mends the bias, subnormals included. NaN codes are given as NaN.
__device__ inline float decode_e4m3(uint8_t code) {
  if ((code & 0x7f) == 0x7f) return __uint_as_float(0x7fc00000u);
  const uint32_t sign = uint32_t{code & 0x80u} << 24;
  return __uint_as_float(sign | uint32_t{code & 0x7fu} << 20) * 0x1p120f;
}

__device__ inline float decode_e2m1(uint8_t code) {
  const uint32_t sign = uint32_t{code & 8u} << 28;
  return __uint_as_float(sign | uint32_t{code & 7u} << 22) * 0x1p126f;
}

/// Nearest E4M3, ties to even, saturating at ±448.
__device__ inline uint8_t encode_e4m3(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

/// Nearest E2M1, ties to the even code, saturating at ±6.
__device__ inline uint8_t encode_e2m1(float x) {
  const float magnitude = fabsf(x);
  const int code = (magnitude > 0.25f) + (magnitude >= 0.75f) + (magnitude > 1.25f) +
                   (magnitude >= 1.75f) + (magnitude > 2.5f) + (magnitude >= 3.5f) +
                   (magnitude > 5.0f);
  return static_cast<uint8_t>(code | (__float_as_uint(x) >> 28 & 8));
}

/// The E8M0 code of 2^⌈log2 x⌉ for a positive normal fp32.
__device__ inline uint8_t e8m0_ceil(float x) {
  const uint32_t bits = __float_as_uint(x);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1 : 0));
}

/// Scales of the quantisers for a group whose largest magnitude is `amax`.
__device__ inline uint8_t q8_scale(float amax) {
  return e8m0_ceil(__fmul_rn(fmaxf(amax, 1e-4f), 1.0f / 448.0f));
}
__device__ inline uint8_t q4m_scale(float amax) {
  return e8m0_ceil(__fmul_rn(fmaxf(amax, 0x1.8p-124f), 1.0f / 6.0f));
}
__device__ inline uint8_t q4n_scale(float amax) {
  return encode_e4m3(__fdiv_rn(fmaxf(amax, 0x1.8p-7f), 6.0f));
}

}  // namespace di::ops::cuda
