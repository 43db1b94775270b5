// The row kernels, compiled for their instruction set.
#include "ops/cpu/avx512/lanes.h"
//
#include "ops/cpu/row_tiles.h"

namespace di::ops::cpu {

const RowKernels kAvx512Rows = kRows;

}  // namespace di::ops::cpu
