// The row kernels, compiled for their instruction set.
#include "ops/cpu/avx512/lanes.h"
// Written over these lanes:
#include "ops/cpu/row_tiles.h"

namespace di::ops::cpu {

const RowKernels kAvx512Rows = kRows;

}  // namespace di::ops::cpu
