// The passes over a row, compiled for whatever the build is for.
#include "sampling/isa/tables.h"
#include "sampling/row_loops.h"

namespace di::sampling {

const RowKernels& plain_row_kernels() {
  static const RowKernels kernels = kernels_named("plain");
  return kernels;
}

}  // namespace di::sampling
