// AVX-512 (F, BW, DQ, VL) as the vector type of double_tiles.h and fp4_tiles.h. For files compiled
// with it only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

namespace di::ops::cpu {
namespace {

struct Avx512 {
  using F = __m512;
  using D = __m512d;
  using I = __m512i;
  static constexpr int kLanes = 16;
  static constexpr int kRows = 8;

  static I load_i(const std::byte* p) { return _mm512_loadu_si512(p); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F zero_f() { return _mm512_setzero_ps(); }
  static F broadcast_f(float x) { return _mm512_set1_ps(x); }
  static F mul_f(F a, F b) { return _mm512_mul_ps(a, b); }
  static F add_f(F a, F b) { return _mm512_add_ps(a, b); }

  // Doubles.
  static F load_f32(const std::byte* p) { return load(reinterpret_cast<const float*>(p)); }
  static F load_bf16(const std::byte* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  /// Sign to bit 31, exponent and mantissa to bits 26 ... 20.
  template <int j>
  static F load_e4m3(const std::byte* p) {
    const I top = _mm512_slli_epi32(load_i(p), 24 - 8 * j);
    const I mask = _mm512_set1_epi32(static_cast<int>(0x87f00000u));
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_srai_epi32(top, 4), mask));
  }
  static D low(F x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
  static D high(F x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }
  static F join(D low, D high) {
    const __m512 lower = _mm512_castps256_ps512(_mm512_cvtpd_ps(low));
    return _mm512_insertf32x8(lower, _mm512_cvtpd_ps(high), 1);
  }
  static D zero() { return _mm512_setzero_pd(); }
  static D broadcast(double x) { return _mm512_set1_pd(x); }
  static D mul(D a, D b) { return _mm512_mul_pd(a, b); }
  static D fma(D a, D b, D c) { return _mm512_fmadd_pd(a, b, c); }

  // Digits.
  static I zero_i() { return _mm512_setzero_si512(); }
  static I broadcast_i(int32_t x) { return _mm512_set1_epi32(x); }
  static I add_i(I a, I b) { return _mm512_add_epi32(a, b); }
  static F to_float(I x) { return _mm512_cvtepi32_ps(x); }
  static F row_scales(const uint8_t* scales) {
    const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales));
    const I bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(codes), 23);
    return _mm512_castsi512_ps(_mm512_max_epi32(bits, broadcast_i(0x00400000)));  // code 0: 2^-127
  }
  struct Pair {
    I first, second;
  };
  static I fp4_table() {
    return _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0)
    );
  }
  static Pair decode_fp4(const std::byte* codes) {
    const I packed = load_i(codes);
    const I nibble = _mm512_set1_epi8(15);
    return {
        _mm512_shuffle_epi8(fp4_table(), _mm512_and_si512(packed, nibble)),
        _mm512_shuffle_epi8(fp4_table(), _mm512_and_si512(_mm512_srli_epi16(packed, 4), nibble))};
  }
  /// Pairs of products in 16 bits; those of a block fit: 16 · 24 · 64 = 24576.
  static I dot(I sum, I weights, const int8_t* digits) {
    int32_t four;
    std::memcpy(&four, digits, sizeof four);
    sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16(weights, broadcast_i(four)));
    __asm__("" : "+v"(sum));  // or GCC reorders the sums and spills every product
    return sum;
  }
  template <int p>
  static I widen(I sum) {
    return _mm512_madd_epi16(sum, _mm512_set1_epi16(static_cast<int16_t>(1 << (7 * p))));
  }
};

}  // namespace
}  // namespace di::ops::cpu
