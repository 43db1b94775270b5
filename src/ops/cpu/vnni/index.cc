// The indexer's kernels with VNNI: four products at once into 32 bits.
#include "ops/cpu/avx512/key_lanes.h"

namespace di::ops::cpu {
namespace {

struct KeyLanes : KeyLanes512 {
  using Partial = __m512i;

  static Partial dot(Partial sum, Words keys, Words q) { return _mm512_dpbusd_epi32(sum, keys, q); }
  static Words finish(Partial sum) { return sum; }
};

}  // namespace
}  // namespace di::ops::cpu

#include "ops/cpu/index_tiles.h"

namespace di::ops::cpu {

const IndexKernels kVnniIndex = kIndex;

}  // namespace di::ops::cpu
