// Sparse attention, compiled for its instruction set.
#include "ops/cpu/avx2/lanes.h"
// Written over these lanes:
#include "ops/cpu/attention_tiles.h"

namespace di::ops::cpu {

const AttentionKernels kAvx2Attention = kAttention;

}  // namespace di::ops::cpu
