// One table of passes for each instruction set; row_kernels() picks.
#pragma once

#include "sampling/row_kernels.h"

namespace di::sampling {

const RowKernels& plain_row_kernels();   ///< runs everywhere
const RowKernels& avx2_row_kernels();    ///< needs AVX2
const RowKernels& avx512_row_kernels();  ///< needs AVX-512 F, BW, DQ, VL

}  // namespace di::sampling
