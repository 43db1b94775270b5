// What sums over a whole row, in the order of the reference. Bit for bit, unless a double function
// of CUDA differs from the C library's where it decides an fp32 rounding (docs/numerics.md).
#pragma once

#include "ops/attention.h"
#include "ops/engram.h"
#include "ops/exec.h"
#include "ops/norm.h"

namespace di::ops::cuda::canonical {

/// OpTable::rms_norm. Throws kUnsupported when Q8 is asked of a width that is no multiple of 32.
void rms_norm(Exec& exec, const RmsNorm& op);

/// OpTable::window_keys: norm, rotation and records one after another. Throws as they do.
void window_keys(Exec& exec, const WindowKeys& op);

/// OpTable::engram_gate.
void engram_gate(Exec& exec, const EngramGate& op);

}  // namespace di::ops::cuda::canonical
