// Sixteen index keys to a register, but for the products themselves. For files compiled with
// AVX-512 only; see index_tiles.h.
#pragma once

#include <cstdint>
#include <cstring>

#include <immintrin.h>

namespace di::ops::cpu {
namespace {

struct KeyLanes512 {
  using Words = __m512i;
  struct Halves {
    __m512d low, high;
  };
  static constexpr int kCount = 16;

  static Words load(const void* p) { return _mm512_loadu_si512(p); }
  static Words broadcast(int32_t x) { return _mm512_set1_epi32(x); }
  static Words broadcast(const int8_t* p) {
    int32_t four;
    std::memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
  }
  static Words zero() { return _mm512_setzero_si512(); }
  static Words add(Words a, Words b) { return _mm512_add_epi32(a, b); }
  static Words shift_left(Words x, Words by) { return _mm512_sllv_epi32(x, by); }

  static __m512 round_bf16(__m512 x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm512_castsi512_ps(_mm512_and_si512(rounded, high));
  }
  /// A head's term: the dot product rounded, clipped at zero, times the weight, rounded.
  static __m512 term(Words dot, const float* key_units, float query_unit, float weight) {
    const __m512 unit = _mm512_mul_ps(_mm512_loadu_ps(key_units), _mm512_set1_ps(query_unit));
    const __m512 value = round_bf16(_mm512_mul_ps(_mm512_cvtepi32_ps(dot), unit));
    const __m512 positive = _mm512_max_ps(value, _mm512_setzero_ps());
    return round_bf16(_mm512_mul_ps(positive, _mm512_set1_ps(weight)));
  }
  static Halves no_sum() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
  static Halves add(Halves sum, __m512 term) {
    return {
        _mm512_add_pd(sum.low, _mm512_cvtps_pd(_mm512_castps512_ps256(term))),
        _mm512_add_pd(sum.high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(term, 1)))};
  }
  static void store_score(float* p, Halves sum) {
    const __m512 rounded = _mm512_insertf32x8(
        _mm512_castps256_ps512(_mm512_cvtpd_ps(sum.low)), _mm512_cvtpd_ps(sum.high), 1
    );
    _mm512_storeu_ps(p, round_bf16(rounded));
  }
};

}  // namespace
}  // namespace di::ops::cpu
