// Which passes this processor can run; see row_kernels.h.
#include "sampling/row_kernels.h"

#include "base/isa.h"
#include "sampling/isa/tables.h"

namespace di::sampling {

std::vector<const RowKernels*> usable_row_kernels() {
  const CpuFeatures cpu = detect_cpu();
  std::vector<const RowKernels*> usable = {&plain_row_kernels()};
  if (cpu.avx2_fma) usable.push_back(&avx2_row_kernels());
  if (cpu.avx512) usable.push_back(&avx512_row_kernels());
  return usable;
}

const RowKernels& row_kernels() {
  static const RowKernels& best = *usable_row_kernels().back();
  return best;
}

}  // namespace di::sampling
