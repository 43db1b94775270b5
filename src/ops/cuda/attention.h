// Sparse attention over the quantised caches on the GPU. Three kernels, chosen by shape: a general
// one for any model, and two for records of 512 channels that give each other's bits.
#pragma once

#include "ops/attention.h"
#include "ops/exec.h"

namespace di::ops::cuda {

/// o of every row. A row's bits depend on its own list alone: neither on the other rows nor on
/// where its keys lie. Throws Error{kUnsupported} before anything runs when a size is out of reach:
/// channels no multiple of 32 or above 512, or a list too long for shared memory.
void sparse_attention(Exec& exec, const SparseAttention& op);

namespace canonical {

/// The same by the general kernel alone, whose arithmetic is the reference's.
void sparse_attention(Exec& exec, const SparseAttention& op);

}  // namespace canonical

}  // namespace di::ops::cuda
