// AVX2 as the vector type of the attention and row kernels: four doubles, or four fp32 beside them.
// For files compiled with AVX2 and FMA only.
#pragma once

#include <cstdint>

#include <immintrin.h>

namespace di::ops::cpu {
namespace {

struct Lanes {
  using Doubles = __m256d;
  using Floats = __m128;
  static constexpr int kCount = 4;

  static Doubles zero() { return _mm256_setzero_pd(); }
  static Doubles broadcast(double x) { return _mm256_set1_pd(x); }
  static Doubles load(const double* p) { return _mm256_loadu_pd(p); }
  static void store(double* p, Doubles x) { _mm256_storeu_pd(p, x); }
  static Doubles add(Doubles a, Doubles b) { return _mm256_add_pd(a, b); }
  static Doubles sub(Doubles a, Doubles b) { return _mm256_sub_pd(a, b); }
  static Doubles mul(Doubles a, Doubles b) { return _mm256_mul_pd(a, b); }
  static Doubles div(Doubles a, Doubles b) { return _mm256_div_pd(a, b); }
  static Doubles fma(Doubles a, Doubles b, Doubles c) { return _mm256_fmadd_pd(a, b, c); }

  static Floats zero_f() { return _mm_setzero_ps(); }
  static Floats broadcast(float x) { return _mm_set1_ps(x); }
  static Floats load(const float* p) { return _mm_loadu_ps(p); }
  static void store(float* p, Floats x) { _mm_storeu_ps(p, x); }
  static Floats add(Floats a, Floats b) { return _mm_add_ps(a, b); }
  static Floats sub(Floats a, Floats b) { return _mm_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm_mul_ps(a, b); }
  static Floats div(Floats a, Floats b) { return _mm_div_ps(a, b); }
  static Floats min(Floats a, Floats b) { return _mm_min_ps(a, b); }
  static Floats max(Floats a, Floats b) { return _mm_max_ps(a, b); }
  static Floats abs(Floats x) { return _mm_andnot_ps(_mm_set1_ps(-0.0f), x); }

  static Doubles widen(Floats x) { return _mm256_cvtps_pd(x); }
  static Floats narrow(Doubles x) { return _mm256_cvtpd_ps(x); }

  static Floats load_bf16(const uint16_t* p) {
    const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(bits), 16));
  }
  /// To the nearest bf16, ties to even; x is not NaN.
  static Floats round_bf16(Floats x) {
    const __m128i bits = _mm_castps_si128(x);
    const __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
    const __m128i rounded = _mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7fff)), odd);
    return _mm_castsi128_ps(_mm_and_si128(rounded, _mm_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  /// Stores fp32 values that round_bf16 made.
  static void store_bf16(uint16_t* p, Floats x) {
    const __m128i high = _mm_srli_epi32(_mm_castps_si128(x), 16);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi32(high, high));
  }

  /// E4M3 codes; not NaN.
  static Floats decode_e4m3(const uint8_t* codes) {
    const __m128i wide = _mm_cvtepu8_epi32(_mm_loadu_si32(codes));
    const __m128i magnitude = _mm_and_si128(wide, _mm_set1_epi32(0x7f));
    const __m128i sign = _mm_slli_epi32(_mm_and_si128(wide, _mm_set1_epi32(0x80)), 24);
    // With the smallest exponent a code m reads as (8 + m) / 1024, but means m / 512.
    const __m128 normal =
        _mm_castsi128_ps(_mm_add_epi32(_mm_slli_epi32(magnitude, 20), _mm_set1_epi32(120 << 23)));
    const __m128 low = _mm_sub_ps(_mm_add_ps(normal, normal), _mm_set1_ps(0x1p-6f));
    const __m128 is_low = _mm_castsi128_ps(_mm_cmplt_epi32(magnitude, _mm_set1_epi32(8)));
    return _mm_or_ps(_mm_blendv_ps(normal, low, is_low), _mm_castsi128_ps(sign));
  }
  /// Stores E4M3 codes: nearest, ties to even, saturating.
  static void store_e4m3(uint8_t* p, Floats x) {
    const __m128i sign =
        _mm_and_si128(_mm_srli_epi32(_mm_castps_si128(x), 24), _mm_set1_epi32(0x80));
    const __m128 magnitude = _mm_min_ps(abs(x), _mm_set1_ps(448.0f));
    const __m128i bits = _mm_castps_si128(magnitude);
    const __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 20), _mm_set1_epi32(1));
    const __m128i rounded = _mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7ffff)), odd);
    const __m128i normal =
        _mm_sub_epi32(_mm_srli_epi32(rounded, 20), _mm_set1_epi32((127 - 7) << 3));
    const __m128i low = _mm_cvtps_epi32(_mm_mul_ps(magnitude, _mm_set1_ps(512.0f)));
    const __m128i is_low = _mm_castps_si128(_mm_cmplt_ps(magnitude, _mm_set1_ps(0x1p-6f)));
    store_bytes(p, _mm_or_si128(_mm_blendv_epi8(normal, low, is_low), sign));
  }
  /// Stores E2M1 codes, one a byte: nearest, ties to even, saturating.
  static void store_e2m1(uint8_t* p, Floats x) {
    const __m128 magnitude = abs(x);
    __m128i code = _mm_and_si128(_mm_srli_epi32(_mm_castps_si128(x), 28), _mm_set1_epi32(8));
    constexpr float kToOdd[] = {0.25f, 1.25f, 2.5f, 5.0f};
    constexpr float kToEven[] = {0.75f, 1.75f, 3.5f};
    for (const float tie : kToOdd)  // a tie stays below an odd code
      code = _mm_sub_epi32(code, _mm_castps_si128(_mm_cmpgt_ps(magnitude, _mm_set1_ps(tie))));
    for (const float tie : kToEven)
      code = _mm_sub_epi32(code, _mm_castps_si128(_mm_cmpge_ps(magnitude, _mm_set1_ps(tie))));
    store_bytes(p, code);
  }
  /// The low byte of every lane.
  static void store_bytes(uint8_t* p, __m128i x) {
    const __m128i first =
        _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    _mm_storeu_si32(p, _mm_shuffle_epi8(x, first));
  }
  /// Even and odd elements.
  static void load_bf16_pairs(const uint16_t* p, Floats& even, Floats& odd) {
    const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    even = _mm_castsi128_ps(_mm_slli_epi32(both, 16));
    odd = _mm_castsi128_ps(_mm_and_si128(both, _mm_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static void store_bf16_pairs(uint16_t* p, Floats even, Floats odd) {
    const __m128i low = _mm_srli_epi32(_mm_castps_si128(even), 16);
    const __m128i both = _mm_or_si128(low, _mm_castps_si128(odd));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), both);
  }
  /// Signed bytes.
  static Floats from_bytes(const int8_t* p) {
    return _mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_loadu_si32(p)));
  }

  /// 2^k for an integer k that was rounded by adding 1.5 · 2^52: `shifted` still holds that sum.
  static Doubles scale_by_power(Doubles x, Doubles shifted) {
    const __m256i exponent = _mm256_slli_epi64(_mm256_castpd_si256(shifted), 52);
    return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(x), exponent));
  }
  /// A bit for each lane whose double lies within 64 units of a midpoint of two normal fp32.
  static unsigned near_midpoint(Doubles x) {
    const __m256i tail = _mm256_and_si256(_mm256_castpd_si256(x), _mm256_set1_epi64x(0x1fffffff));
    const __m256i above = _mm256_cmpgt_epi64(tail, _mm256_set1_epi64x(0x10000000 - 65));
    const __m256i below = _mm256_cmpgt_epi64(_mm256_set1_epi64x(0x10000000 + 65), tail);
    return static_cast<unsigned>(
        _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_and_si256(above, below)))
    );
  }
  /// A bit for each lane with a < b.
  static unsigned less(Floats a, Floats b) {
    return static_cast<unsigned>(_mm_movemask_ps(_mm_cmplt_ps(a, b)));
  }
  /// x, but zero in the lanes where a < b.
  static Floats zero_where_less(Floats x, Floats a, Floats b) {
    return _mm_andnot_ps(_mm_cmplt_ps(a, b), x);
  }
};

}  // namespace
}  // namespace di::ops::cpu
