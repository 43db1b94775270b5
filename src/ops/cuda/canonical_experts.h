// The experts in the arithmetic of the reference, bit for bit.
#pragma once

#include "ops/exec.h"
#include "ops/moe.h"

namespace di::ops::cuda::canonical {

/// OpTable::experts for weights of canonical_weights.h, placed as for cuda::experts: w1, w3, gated
/// activation, Q8, w2, sum, one launch after another. Throws kUnsupported for other weights or
/// widths that are no multiple of 32.
void experts(Exec& exec, const Experts& op);

}  // namespace di::ops::cuda::canonical
