// The passes over a row, compiled for AVX2.
#include "sampling/isa/tables.h"
#include "sampling/row_loops.h"

namespace di::sampling {

const RowKernels& avx2_row_kernels() {
  static const RowKernels kernels = kernels_named("avx2");
  return kernels;
}

}  // namespace di::sampling
