// The experts of a mixture-of-experts layer: grouped matrix multiplications over the rows that the
// router gave to each expert, with the gated activation between them.
#pragma once

#include "ops/exec.h"
#include "ops/moe.h"

namespace di::ops::cuda {

/// Entry `experts`. Weights are packed (packing.h), the routed experts' in one format, FP4 or FP8,
/// and the shared expert's in one; w1, w3 and w2 of the routed experts lie at constant distances
/// from one expert to the next, as the loader places them. Rows with the id -1 in a slot have no
/// such expert. Throws kUnsupported for other weights or widths that are no multiple of 32.
void experts(Exec& exec, const Experts& op);

/// The forms of the kernel: tiles of rows that share an expert's weights.
enum class ExpertTiles {
  kNarrow,   ///< up to 64 rows, for few rows an expert: memory is the limit
  kWide32,   ///< up to 32 rows, for some rows an expert: unpacking is the limit
  kWide64,   ///< up to 64 rows
  kWide128,  ///< up to 128 rows: the tensor cores are the limit
  kWide256,  ///< up to 256 rows
};

/// `experts` with a given choice; the results are the same.
void experts_with(Exec& exec, const Experts& op, ExpertTiles tiles);

}  // namespace di::ops::cuda
