// AVX-512 as the vector type of the attention and row kernels: eight doubles, or eight fp32 beside
// them. For files compiled with AVX-512 F, BW, DQ and VL only.
#pragma once

#include <cstdint>

#include <immintrin.h>

namespace di::ops::cpu {
namespace {

struct Lanes {
  using Doubles = __m512d;
  using Floats = __m256;
  static constexpr int kCount = 8;

  static Doubles zero() { return _mm512_setzero_pd(); }
  static Doubles broadcast(double x) { return _mm512_set1_pd(x); }
  static Doubles load(const double* p) { return _mm512_loadu_pd(p); }
  static void store(double* p, Doubles x) { _mm512_storeu_pd(p, x); }
  static Doubles add(Doubles a, Doubles b) { return _mm512_add_pd(a, b); }
  static Doubles sub(Doubles a, Doubles b) { return _mm512_sub_pd(a, b); }
  static Doubles mul(Doubles a, Doubles b) { return _mm512_mul_pd(a, b); }
  static Doubles div(Doubles a, Doubles b) { return _mm512_div_pd(a, b); }
  static Doubles fma(Doubles a, Doubles b, Doubles c) { return _mm512_fmadd_pd(a, b, c); }

  static Floats zero_f() { return _mm256_setzero_ps(); }
  static Floats broadcast(float x) { return _mm256_set1_ps(x); }
  static Floats load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, Floats x) { _mm256_storeu_ps(p, x); }
  static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats div(Floats a, Floats b) { return _mm256_div_ps(a, b); }
  static Floats min(Floats a, Floats b) { return _mm256_min_ps(a, b); }
  static Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  static Floats abs(Floats x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }

  static Doubles widen(Floats x) { return _mm512_maskz_cvtps_pd(0xff, x); }
  static Floats narrow(Doubles x) { return _mm512_maskz_cvtpd_ps(0xff, x); }

  static Floats load_bf16(const uint16_t* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  /// To the nearest bf16, ties to even; x is not NaN.
  static Floats round_bf16(Floats x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm256_castsi256_ps(_mm256_and_si256(rounded, high));
  }
  /// Stores fp32 values that round_bf16 made.
  static void store_bf16(uint16_t* p, Floats x) {
    const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(x), 16);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtepi32_epi16(high));
  }

  /// E4M3 codes; not NaN.
  static Floats decode_e4m3(const uint8_t* codes) {
    const __m256i wide =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
    const __m256i magnitude = _mm256_and_si256(wide, _mm256_set1_epi32(0x7f));
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(wide, _mm256_set1_epi32(0x80)), 24);
    // With the smallest exponent a code m reads as (8 + m) / 1024, but means m / 512.
    const __m256 normal = _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_slli_epi32(magnitude, 20), _mm256_set1_epi32(120 << 23))
    );
    const __m256 low = _mm256_sub_ps(_mm256_add_ps(normal, normal), _mm256_set1_ps(0x1p-6f));
    const __mmask8 is_low = _mm256_cmplt_epi32_mask(magnitude, _mm256_set1_epi32(8));
    return _mm256_or_ps(_mm256_mask_blend_ps(is_low, normal, low), _mm256_castsi256_ps(sign));
  }
  /// Stores E4M3 codes: nearest, ties to even, saturating.
  static void store_e4m3(uint8_t* p, Floats x) {
    const __m256i sign =
        _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(x), 24), _mm256_set1_epi32(0x80));
    const __m256 magnitude = _mm256_min_ps(abs(x), _mm256_set1_ps(448.0f));
    const __m256i bits = _mm256_castps_si256(magnitude);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 20), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7ffff)), odd);
    const __m256i normal =
        _mm256_sub_epi32(_mm256_srli_epi32(rounded, 20), _mm256_set1_epi32((127 - 7) << 3));
    const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(magnitude, _mm256_set1_ps(512.0f)));
    const __mmask8 is_low = _mm256_cmp_ps_mask(magnitude, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ);
    store_bytes(p, _mm256_or_si256(_mm256_mask_blend_epi32(is_low, normal, low), sign));
  }
  /// Stores E2M1 codes, one a byte: nearest, ties to even, saturating.
  static void store_e2m1(uint8_t* p, Floats x) {
    const __m256 magnitude = abs(x);
    const __m256i one = _mm256_set1_epi32(1);
    __m256i code =
        _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(x), 28), _mm256_set1_epi32(8));
    constexpr float kToOdd[] = {0.25f, 1.25f, 2.5f, 5.0f};
    constexpr float kToEven[] = {0.75f, 1.75f, 3.5f};
    for (const float tie : kToOdd) {  // a tie stays below an odd code
      const __mmask8 above = _mm256_cmp_ps_mask(magnitude, _mm256_set1_ps(tie), _CMP_GT_OQ);
      code = _mm256_mask_add_epi32(code, above, code, one);
    }
    for (const float tie : kToEven) {
      const __mmask8 above = _mm256_cmp_ps_mask(magnitude, _mm256_set1_ps(tie), _CMP_GE_OQ);
      code = _mm256_mask_add_epi32(code, above, code, one);
    }
    store_bytes(p, code);
  }
  /// The low byte of every lane.
  static void store_bytes(uint8_t* p, __m256i x) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm256_cvtepi32_epi8(x));
  }
  /// Even and odd elements.
  static void load_bf16_pairs(const uint16_t* p, Floats& even, Floats& odd) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    even = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    odd = _mm256_castsi256_ps(_mm256_and_si256(both, high));
  }
  static void store_bf16_pairs(uint16_t* p, Floats even, Floats odd) {
    const __m256i low = _mm256_srli_epi32(_mm256_castps_si256(even), 16);
    const __m256i both = _mm256_or_si256(low, _mm256_castps_si256(odd));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), both);
  }
  /// Signed bytes.
  static Floats from_bytes(const int8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }

  /// 2^k for an integer k that was rounded by adding 1.5 · 2^52: `shifted` still holds that sum.
  static Doubles scale_by_power(Doubles x, Doubles shifted) {
    const __m512i exponent = _mm512_maskz_slli_epi64(0xff, _mm512_castpd_si512(shifted), 52);
    return _mm512_castsi512_pd(_mm512_add_epi64(_mm512_castpd_si512(x), exponent));
  }
  /// A bit for each lane whose double lies within 64 units of a midpoint of two normal fp32.
  static unsigned near_midpoint(Doubles x) {
    const __m512i tail = _mm512_and_si512(_mm512_castpd_si512(x), _mm512_set1_epi64(0x1fffffff));
    const __m512i from = _mm512_sub_epi64(tail, _mm512_set1_epi64(0x10000000 - 64));
    return _mm512_cmp_epu64_mask(from, _mm512_set1_epi64(128), _MM_CMPINT_LE);
  }
  /// A bit for each lane with a < b.
  static unsigned less(Floats a, Floats b) { return _mm256_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  /// x, but zero in the lanes where a < b.
  static Floats zero_where_less(Floats x, Floats a, Floats b) {
    return _mm256_maskz_mov_ps(_mm256_cmp_ps_mask(a, b, _CMP_NLT_UQ), x);
  }
};

}  // namespace
}  // namespace di::ops::cpu
