// The cuda backend's op table.
#pragma once

#include "ops/ops.h"

namespace di::ops {

/// On the current CUDA device, for Hopper (compute capability 9.0). Deterministic, and independent
/// of the batch; equal to ref_ops() within the tolerances of docs/numerics.md. Throws
/// Error{kUnsupported} when there is no device, or none that this build has kernels for.
const OpTable& cuda_ops();

}  // namespace di::ops
