// The passes over a row, compiled for AVX-512.
#include "sampling/isa/tables.h"
#include "sampling/row_loops.h"

namespace di::sampling {

const RowKernels& avx512_row_kernels() {
  static const RowKernels kernels = kernels_named("avx512");
  return kernels;
}

}  // namespace di::sampling
