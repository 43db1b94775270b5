// The row kernels, compiled for their instruction set.
#include "ops/cpu/avx2/lanes.h"
// Written over these lanes:
#include "ops/cpu/row_tiles.h"

namespace di::ops::cpu {

const RowKernels kAvx2Rows = kRows;

}  // namespace di::ops::cpu
