// The linears in the arithmetic of the reference, bit for bit.
#pragma once

#include "ops/exec.h"
#include "ops/linear.h"

namespace di::ops::cuda::canonical {

/// OpTable::linear_q8 for kFp8 and kFp4 weights of canonical_weights.h. Throws kUnsupported for
/// others.
void linear_q8(Exec& exec, const LinearQ8& op);

/// OpTable::linear for kFp8, kBf16 and kF32 weights, likewise.
void linear(Exec& exec, const Linear& op);

/// OpTable::linear_set: one product after another.
void linear_set(Exec& exec, const LinearSet& op);

}  // namespace di::ops::cuda::canonical
