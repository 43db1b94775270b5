// AVX-512 (F, BW, DQ, VL) as the vector type of the kernels written over one (double_tiles.h,
// fp4_tiles.h, fp8_*.h). For files compiled with it only.
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
  static constexpr int kWordRows = 4;
  static constexpr int kDoubleRows = 8;

  /// Sums or weights of kLanes rows: the even and the odd ones, or the first and the second half.
  struct Doubles {
    D even, odd;
  };

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

  // FP8 as doubles: in every 32-bit lane, byte j moves to the sign, the low exponent bits and the
  // high mantissa bits of a double's upper half; then even and odd lanes part.
  template <int j>
  static Doubles doubles_e4m3(I quads) {
    const I halves = _mm512_srai_epi32(_mm512_slli_epi32(quads, 24 - 8 * j), 7);
    const I mask = _mm512_set1_epi64(static_cast<long long>(0x80fe000000000000u));
    const I even = _mm512_slli_epi64(halves, 32);
    return {
        _mm512_castsi512_pd(_mm512_and_si512(even, mask)),
        _mm512_castsi512_pd(_mm512_and_si512(halves, mask))};
  }
  static D add_d(D a, D b) { return _mm512_add_pd(a, b); }
  static F interleave(D even, D odd) {
    const __m512 e = _mm512_castps256_ps512(_mm512_cvtpd_ps(even));
    const __m512 o = _mm512_castps256_ps512(_mm512_cvtpd_ps(odd));
    const I order = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(e, order, o);
  }

  // FP8 as words.
  template <int j, int n>
  static I fixed_e4m3(const std::byte* p) {
    F value = mul_f(load_e4m3<j>(p), broadcast_f(0x1p126f));
    if constexpr (n == 9) value = mul_f(value, broadcast_f(8.0f));  // 2^129 takes two steps
    static_assert(n == 6 || n == 9);
    return _mm512_cvtps_epi32(value);
  }
  template <int n>
  static I sra(I x) {
    return _mm512_srai_epi32(x, n);
  }
  template <int n>
  static I sll(I x) {
    return _mm512_slli_epi32(x, n);
  }
  static I and_i(I a, I b) { return _mm512_and_si512(a, b); }
  static F fma_f(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static I join_words(I low, I high) {
    return _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_slli_epi32(high, 16));
  }
  static uint64_t positive_bytes(I x) { return _mm512_cmpgt_epi8_mask(x, zero_i()); }
  static I two_digits(const int16_t* digits) {
    int32_t two;
    std::memcpy(&two, digits, sizeof two);
    return broadcast_i(two);
  }
  static I dot_words(I sum, I weights, I digits) {
    sum = _mm512_add_epi32(sum, _mm512_madd_epi16(weights, digits));
    __asm__("" : "+v"(sum));  // as in dot
    return sum;
  }
};

}  // namespace
}  // namespace di::ops::cpu
