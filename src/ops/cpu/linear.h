// The linear layers over packed weights: prepare the activations once, then every pair of a row
// chunk and a weight tile is one piece of parallel work.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/exec.h"
#include "ops/linear.h"

namespace di::ops::cpu {

void linear_q8(const Kernels& kernels, Exec& exec, const LinearQ8& op);
void linear(const Kernels& kernels, Exec& exec, const Linear& op);

}  // namespace di::ops::cpu
