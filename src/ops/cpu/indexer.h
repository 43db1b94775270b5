// The indexer's selection on the cpu backend. Bit-identical to ref::index_select.
#pragma once

#include "ops/cpu/index_kernels.h"
#include "ops/exec.h"
#include "ops/indexer.h"

namespace di::ops::cpu {

/// OpTable::index_select with the kernels of one instruction set.
void index_select(const IndexKernels& kernels, Exec& exec, const IndexSelect& op);

}  // namespace di::ops::cpu
