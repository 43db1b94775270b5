// The indexer's kernels with AVX2: eight keys to a register, products in pairs of 16 bits.
#include <cstring>

#include <immintrin.h>

#include "ops/cpu/index_kernels.h"

namespace di::ops::cpu {
namespace {

struct KeyLanes {
  using Words = __m256i;
  using Partial = __m256i;  // 16-bit pairs; eight additions of at most 2 · 24 · 12 fit
  struct Halves {
    __m256d low, high;
  };
  static constexpr int kCount = 8;

  static Words load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static Words broadcast(int32_t x) { return _mm256_set1_epi32(x); }
  static Words broadcast(const int8_t* p) {
    int32_t four;
    std::memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
  }
  static Partial zero() { return _mm256_setzero_si256(); }
  static Partial dot(Partial sum, Words keys, Words q) {
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(keys, q));
  }
  static Words finish(Partial sum) { return _mm256_madd_epi16(sum, _mm256_set1_epi16(1)); }
  static Words add(Words a, Words b) { return _mm256_add_epi32(a, b); }
  static Words shift_left(Words x, Words by) { return _mm256_sllv_epi32(x, by); }

  static __m256 round_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return _mm256_castsi256_ps(_mm256_and_si256(rounded, high));
  }
  /// A head's term: the dot product rounded, clipped at zero, times the weight, rounded.
  static __m256 term(Words dot, const float* key_units, float query_unit, float weight) {
    const __m256 unit = _mm256_mul_ps(_mm256_loadu_ps(key_units), _mm256_set1_ps(query_unit));
    const __m256 value = round_bf16(_mm256_mul_ps(_mm256_cvtepi32_ps(dot), unit));
    const __m256 positive = _mm256_max_ps(value, _mm256_setzero_ps());
    return round_bf16(_mm256_mul_ps(positive, _mm256_set1_ps(weight)));
  }
  static Halves no_sum() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
  static Halves add(Halves sum, __m256 term) {
    return {
        _mm256_add_pd(sum.low, _mm256_cvtps_pd(_mm256_castps256_ps128(term))),
        _mm256_add_pd(sum.high, _mm256_cvtps_pd(_mm256_extractf128_ps(term, 1)))};
  }
  static void store_score(float* p, Halves sum) {
    const __m256 rounded = _mm256_set_m128(_mm256_cvtpd_ps(sum.high), _mm256_cvtpd_ps(sum.low));
    _mm256_storeu_ps(p, round_bf16(rounded));
  }
};

}  // namespace
}  // namespace di::ops::cpu

#include "ops/cpu/index_tiles.h"

namespace di::ops::cpu {

const IndexKernels kAvx2Index = kIndex;

}  // namespace di::ops::cpu
