// The mixture of experts over packed weights.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/exec.h"
#include "ops/moe.h"

namespace di::ops::cpu {

/// Two parallel loops, whatever the number of rows and experts: gate, up and swiglu of every
/// (expert, 32 inner columns), then down and the sum of every 16 output columns. An expert's
/// weights are read once for each 16 of its rows.
void experts(const Kernels& kernels, Exec& exec, const Experts& op);

}  // namespace di::ops::cpu
