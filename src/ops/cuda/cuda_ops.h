// The cuda backend's op table.
#pragma once

#include "ops/ops.h"

namespace di::ops {

/// On the current CUDA device, for Hopper (compute capability 9.0). Deterministic, and independent
/// of the batch; equal to ref_ops() within the tolerances of docs/numerics.md. Throws
/// Error{kUnsupported} when there is no device, or none that this build has kernels for.
const OpTable& cuda_ops();

/// The same device in the canonical arithmetic: the bits of ref_ops(), from plain kernels that are
/// many times slower where the fast ones multiply with tensor cores. Shares all other ops, and the
/// memory; weights are packed in another form.
const OpTable& canonical_cuda_ops();

}  // namespace di::ops
