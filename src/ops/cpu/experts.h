// The mixture of experts over packed weights.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/row_kernels.h"
#include "ops/exec.h"
#include "ops/moe.h"

namespace di::ops::cpu {

/// What one instruction set offers for the products and for swiglu and Q8 between them.
struct ExpertKernels {
  const Kernels& linear;
  const RowKernels& rows;
};

/// Two parallel loops, whatever the number of rows and experts: gate, up and swiglu of every
/// (expert, 32 inner columns), then down and the sum of every 16 output columns. An expert's
/// weights are read once for each 16 of its rows.
void experts(const ExpertKernels& kernels, Exec& exec, const Experts& op);

}  // namespace di::ops::cpu
