// Row by row: Q8, RMS norm, rotary positions; see ops/linear.h and ops/norm.h.
#pragma once

#include "ops/exec.h"
#include "ops/linear.h"
#include "ops/norm.h"

namespace di::ops::cuda {

/// Throws Error{kUnsupported} unless the columns are a multiple of 32.
void quantize_fp8(Exec& exec, const QuantizeFp8& op);

/// The squares are summed in double in an order that the width alone decides. Throws
/// Error{kUnsupported} unless the width is a multiple of 8 and at most 16,384.
void rms_norm(Exec& exec, const RmsNorm& op);

/// Throws Error{kUnsupported} unless head_dim is even.
void rope(Exec& exec, const Rope& op);

}  // namespace di::ops::cuda
