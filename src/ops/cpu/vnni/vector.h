// AVX-512 with VNNI and VBMI: four byte products in one instruction, and byte lookups that ignore
// the upper bits of their index. For files compiled with them only.
#pragma once

#include "ops/cpu/avx512/vector.h"

namespace di::ops::cpu {
namespace {

struct Vnni : Avx512 {
  static constexpr int kWordRows = 8;  // a dot product has more latency than a multiply and an add

  /// vpermb looks at six bits of an index, so a table that repeats every 16 needs no masking.
  static Pair decode_fp4(const std::byte* codes) {
    const I packed = load_i(codes);
    return {
        _mm512_permutexvar_epi8(packed, fp4_table()),
        _mm512_permutexvar_epi8(_mm512_srli_epi16(packed, 4), fp4_table())};
  }
  static I dot(I sum, I weights, const int8_t* digits) {
    int32_t four;
    std::memcpy(&four, digits, sizeof four);
    return _mm512_dpbusd_epi32(sum, weights, broadcast_i(four));
  }
  template <int p>
  static I widen(I sum) {
    return _mm512_slli_epi32(sum, 8 * p);
  }
  static I dot_words(I sum, I weights, I digits) {
    return _mm512_dpwssd_epi32(sum, weights, digits);
  }
  /// table[code & 127], subtracted from zero where the sign bit of the code is set.
  static I lookup_signed(I codes, const uint8_t* table) {
    const I low = _mm512_load_si512(table);
    const I high = _mm512_load_si512(table + 64);
    const I found = _mm512_permutex2var_epi8(low, codes, high);
    return _mm512_mask_sub_epi8(found, _mm512_movepi8_mask(codes), zero_i(), found);
  }
};

}  // namespace
}  // namespace di::ops::cpu
