// AVX2 as the vector type of the kernels written over one (double_tiles.h, fp4_tiles.h, fp8_*.h).
// For files compiled with AVX2 and FMA only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <immintrin.h>

namespace di::ops::cpu {
namespace {

struct Avx2 {
  using F = __m256;
  using D = __m256d;
  using I = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kRows = 4;
  static constexpr int kWordRows = 2;
  static constexpr int kDoubleRows = 6;

  /// Sums or weights of kLanes rows: the even and the odd ones, or the first and the second half.
  struct Doubles {
    D even, odd;
  };

  static I load_i(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F zero_f() { return _mm256_setzero_ps(); }
  static F broadcast_f(float x) { return _mm256_set1_ps(x); }
  static F mul_f(F a, F b) { return _mm256_mul_ps(a, b); }
  static F add_f(F a, F b) { return _mm256_add_ps(a, b); }

  // Doubles.
  static F load_f32(const std::byte* p) { return load(reinterpret_cast<const float*>(p)); }
  static F load_bf16(const std::byte* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  /// Sign to bit 31, exponent and mantissa to bits 26 ... 20.
  template <int j>
  static F load_e4m3(const std::byte* p) {
    const I top = _mm256_slli_epi32(load_i(p), 24 - 8 * j);
    const I mask = _mm256_set1_epi32(static_cast<int>(0x87f00000u));
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_srai_epi32(top, 4), mask));
  }
  static D low(F x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
  static D high(F x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }
  static F join(D low, D high) {
    return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
  }
  static D zero() { return _mm256_setzero_pd(); }
  static D broadcast(double x) { return _mm256_set1_pd(x); }
  static D mul(D a, D b) { return _mm256_mul_pd(a, b); }
  static D fma(D a, D b, D c) { return _mm256_fmadd_pd(a, b, c); }

  // Digits.
  static I zero_i() { return _mm256_setzero_si256(); }
  static I broadcast_i(int32_t x) { return _mm256_set1_epi32(x); }
  static I add_i(I a, I b) { return _mm256_add_epi32(a, b); }
  static F to_float(I x) { return _mm256_cvtepi32_ps(x); }
  static F row_scales(const uint8_t* scales) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales));
    const I bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(codes), 23);
    return _mm256_castsi256_ps(_mm256_max_epi32(bits, broadcast_i(0x00400000)));  // code 0: 2^-127
  }
  struct Pair {
    I first, second;
  };
  static Pair decode_fp4(const std::byte* codes) {
    const I table = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0)
    );
    const I packed = load_i(codes);
    const I nibble = _mm256_set1_epi8(15);
    return {
        _mm256_shuffle_epi8(table, _mm256_and_si256(packed, nibble)),
        _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(packed, 4), nibble))};
  }
  /// Pairs of products in 16 bits; those of a block fit: 16 · 24 · 64 = 24576.
  static I dot(I sum, I weights, const int8_t* digits) {
    int32_t four;
    std::memcpy(&four, digits, sizeof four);
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(weights, broadcast_i(four)));
    __asm__("" : "+x"(sum));  // or GCC reorders the sums and spills every product
    return sum;
  }
  template <int p>
  static I widen(I sum) {
    return _mm256_madd_epi16(sum, _mm256_set1_epi16(static_cast<int16_t>(1 << (7 * p))));
  }

  // FP8 as doubles: in every 32-bit lane, byte j moves to the sign, the low exponent bits and the
  // high mantissa bits of a double's upper half; then even and odd lanes part.
  template <int j>
  static Doubles doubles_e4m3(I quads) {
    const I halves = _mm256_srai_epi32(_mm256_slli_epi32(quads, 24 - 8 * j), 7);
    const I mask = _mm256_set1_epi64x(static_cast<long long>(0x80fe000000000000u));
    const I even = _mm256_slli_epi64(halves, 32);
    return {
        _mm256_castsi256_pd(_mm256_and_si256(even, mask)),
        _mm256_castsi256_pd(_mm256_and_si256(halves, mask))};
  }
  static D add_d(D a, D b) { return _mm256_add_pd(a, b); }
  static F interleave(D even, D odd) {
    const __m128 e = _mm256_cvtpd_ps(even);
    const __m128 o = _mm256_cvtpd_ps(odd);
    return _mm256_set_m128(_mm_unpackhi_ps(e, o), _mm_unpacklo_ps(e, o));
  }

  // FP8 as words.
  template <int j, int n>
  static I fixed_e4m3(const std::byte* p) {
    F value = mul_f(load_e4m3<j>(p), broadcast_f(0x1p126f));
    if constexpr (n == 9) value = mul_f(value, broadcast_f(8.0f));  // 2^129 takes two steps
    static_assert(n == 6 || n == 9);
    return _mm256_cvtps_epi32(value);
  }
  template <int n>
  static I sra(I x) {
    return _mm256_srai_epi32(x, n);
  }
  template <int n>
  static I sll(I x) {
    return _mm256_slli_epi32(x, n);
  }
  static I and_i(I a, I b) { return _mm256_and_si256(a, b); }
  static F fma_f(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static I join_words(I low, I high) {
    return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
  }
  static uint64_t positive_bytes(I x) {
    return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpgt_epi8(x, zero_i())));
  }
  static I two_digits(const int16_t* digits) {
    int32_t two;
    std::memcpy(&two, digits, sizeof two);
    return broadcast_i(two);
  }
  static I dot_words(I sum, I weights, I digits) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(weights, digits));
    __asm__("" : "+x"(sum));  // as in dot
    return sum;
  }
};

}  // namespace
}  // namespace di::ops::cpu
