// Ops that pass once over each row, at the model's real widths; part of `deepinfer bench ops`.
#pragma once

#include "bench/op_runner.h"

namespace di::bench {

/// "rms_norm", "quantize_fp8", "quantize_mxfp4", "mhc_collapse", "mhc_expand", "rope", "swiglu" and
/// "route". `gbps` counts what they read and write; short rows live in the caches, so their `share`
/// of the memory's bandwidth may exceed 1.
void bench_rowwise(OpRunner& runner);

}  // namespace di::bench
