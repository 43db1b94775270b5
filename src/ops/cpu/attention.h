// Sparse attention on the cpu backend. Bit-identical to ref::sparse_attention.
#pragma once

#include "ops/attention.h"
#include "ops/cpu/attention_kernels.h"
#include "ops/exec.h"

namespace di::ops::cpu {

/// OpTable::sparse_attention with the kernels of one instruction set.
void sparse_attention(const AttentionKernels& kernels, Exec& exec, const SparseAttention& op);

}  // namespace di::ops::cpu
