// From codes to bf16 pairs in registers, exactly: the bits of a code move to where bf16 keeps sign,
// low exponent and high mantissa, and one multiplication by a power of two mends the exponent bias,
// the subnormal codes and the scale together.
//
// Codes in these places, which leave gaps, do not tile a word. So a packed word is not a list of
// codes: some registers come from two shifted copies of it, xored, and the packer (packing.cu)
// solves for the word that gives all registers their codes. This saves an instruction or two for
// each register against codes that lie where there is room.
//
// The power of two must be a finite bf16, so all unpacked values are too small by a constant power
// (kWeightShift, kActivationShift), which the caller puts back when it writes a result. Then weight
// scales reach 2^33 and activation scales 2^23. Above, the multiplier is infinite, and so the
// result is not finite: never a plausible wrong number. Values below 2^-94 lose bits, as no real
// model notices.
#pragma once

#include <cstdint>

#include "ops/cuda/number_formats.cuh"

namespace di::ops::cuda {

/// Unpacked weights are 2^-32 of their value (bf16 weights, which are not unpacked, are not).
inline constexpr int kWeightShift = 32;
/// Unpacked activations are 2^-16 of their value.
inline constexpr int kActivationShift = 16;

namespace detail {
inline constexpr int kFp4Bias = 126;  // 2^126 makes an E2M1 code in bf16's fields its value
inline constexpr int kFp8Bias = 120;
/// The exponent field of 2^(scale − 127 + bias − shift); 255 is infinity.
__host__ __device__ constexpr int multiplier_field(int scale, int bias, int shift) {
  const int field = scale + bias - shift;
  return scale == 255 || field > 255 ? 255 : field;
}
}  // namespace detail

/// The byte that a packed FP4 block stores for an E8M0 weight scale: the multiplier's exponent
/// field, its lowest bit on top. Two bytes of bf16 follow without a shift, but where the field is
/// odd the multiplier is negative, and so are the codes below it (see kNegated).
__host__ __device__ constexpr uint8_t fp4_multiplier(uint8_t scale) {
  const int field = detail::multiplier_field(scale, detail::kFp4Bias, kWeightShift);
  return static_cast<uint8_t>(field >> 1 | field << 7);
}
/// The bit of such a byte that says that its codes are stored negated.
inline constexpr uint8_t kNegated = 0x80;
/// The byte that a packed FP8 block stores: the multiplier's exponent field.
__host__ __device__ constexpr uint8_t fp8_multiplier(uint8_t scale) {
  return static_cast<uint8_t>(detail::multiplier_field(scale, detail::kFp8Bias, kWeightShift));
}
__host__ __device__ constexpr uint8_t activation_multiplier(uint8_t scale) {
  return static_cast<uint8_t>(detail::multiplier_field(scale, detail::kFp8Bias, kActivationShift));
}

/// The multiplier of a field in both halves of a register.
__device__ inline uint32_t multiplier_pair(uint32_t field) {
  return field * 0x00800080u;
}

__device__ inline uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

/// Both rounded to nearest even, `low` in the lower half; a NaN stays one.
__device__ inline uint32_t round_bf16_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// The multiplier of byte i of a packed word of four fp4_multiplier(), in both halves of a
/// register.
__device__ inline uint32_t fp4_multiplier_pair(uint32_t word, int i) {
  return __byte_perm(word & 0x80808080u, word, 0x4040 + 0x1111 * i);
}

/// Where the registers of a fragment keep a code before the multiplication.
inline constexpr uint32_t kFp4Places = 0x81c081c0u;
inline constexpr uint32_t kFp8Places = 0x87f087f0u;

/// The bits of register p of the fragment that a packed word of eight E2M1 codes holds.
__device__ inline uint32_t fp4_places(uint32_t q, int p) {
  switch (p) {
    case 0: return q & kFp4Places;
    case 1: return (q ^ __funnelshift_r(q, q, 4)) & kFp4Places;
    case 2: return (q << 2 ^ q >> 6) & kFp4Places;
    default: return q << 6 & kFp4Places;
  }
}
/// The bits of the second of two registers that a packed word of four E4M3 codes holds; those of
/// the first lie in place.
__device__ inline uint32_t fp8_second_places(uint32_t q) {
  return (q << 4 ^ q >> 4) & kFp8Places;
}

/// Eight E2M1 codes of a packed word to the four registers of a 64 × 16 fragment. `upper` scales
/// registers 0 and 2 (row r), `lower` 1 and 3 (row r + 8 of the fragment).
__device__ inline void unpack_fp4(uint32_t q, uint32_t upper, uint32_t lower, uint32_t (&a)[4]) {
#pragma unroll
  for (int p = 0; p < 4; ++p)
    a[p] = multiply_bf16x2(fp4_places(q, p), p % 2 == 0 ? upper : lower);
}

/// Four E4M3 codes of a packed word to two registers.
__device__ inline void unpack_fp8(
    uint32_t q, uint32_t multiplier, uint32_t& first, uint32_t& second
) {
  first = multiply_bf16x2(q & kFp8Places, multiplier);
  second = multiply_bf16x2(fp8_second_places(q), multiplier);
}

/// A thread's 16 bytes of FP8 weights, 32 columns, to the registers of two 64 × 16 fragments.
__device__ inline void unpack_fp8_group(
    const uint4& q, uint32_t field, uint32_t (&first)[4], uint32_t (&second)[4]
) {
  const uint32_t multiplier = multiplier_pair(field);
  unpack_fp8(q.x, multiplier, first[0], first[1]);
  unpack_fp8(q.y, multiplier, first[2], first[3]);
  unpack_fp8(q.z, multiplier, second[0], second[1]);
  unpack_fp8(q.w, multiplier, second[2], second[3]);
}

/// Eight E4M3 activation codes in the order of memory to eight bf16 in the order of memory, all
/// with one scale. A NaN code makes all eight NaN: they belong to one row of one sum.
__device__ inline uint4 expand_activations(const uint2& codes, uint8_t scale) {
  const uint32_t q[2] = {codes.x, codes.y};
  const uint32_t carries =
      ((q[0] & 0x7f7f7f7fu) + 0x01010101u) | ((q[1] & 0x7f7f7f7fu) + 0x01010101u);
  const uint32_t multiplier =
      (carries & 0x80808080u) != 0 ? 0x7fc07fc0u : multiplier_pair(activation_multiplier(scale));
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t low = __byte_perm(q[i], 0, 0x1404);  // codes 0 and 1 as the high bytes
    const uint32_t high = __byte_perm(q[i], 0, 0x3424);
    out[2 * i] = multiply_bf16x2((low & 0x80008000u) | (low >> 4 & 0x07f007f0u), multiplier);
    out[2 * i + 1] = multiply_bf16x2((high & 0x80008000u) | (high >> 4 & 0x07f007f0u), multiplier);
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

/// Sixteen of them, to two times eight.
__device__ inline void expand_activations(const uint4& codes, uint8_t scale, uint4 (&x)[2]) {
  x[0] = expand_activations(make_uint2(codes.x, codes.y), scale);
  x[1] = expand_activations(make_uint2(codes.z, codes.w), scale);
}

}  // namespace di::ops::cuda
