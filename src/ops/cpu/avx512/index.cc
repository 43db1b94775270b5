// The indexer's kernels with AVX-512: products in pairs of 16 bits.
#include "ops/cpu/avx512/key_lanes.h"

namespace di::ops::cpu {
namespace {

struct KeyLanes : KeyLanes512 {
  using Partial = __m512i;  // 16-bit pairs; eight additions of at most 2 · 24 · 12 fit

  static Partial dot(Partial sum, Words keys, Words q) {
    return _mm512_add_epi16(sum, _mm512_maddubs_epi16(keys, q));
  }
  static Words finish(Partial sum) { return _mm512_madd_epi16(sum, _mm512_set1_epi16(1)); }
};

}  // namespace
}  // namespace di::ops::cpu

#include "ops/cpu/index_tiles.h"

namespace di::ops::cpu {

const IndexKernels kAvx512Index = kIndex;

}  // namespace di::ops::cpu
