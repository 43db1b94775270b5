// Sparse attention and the indexer at the model's real sizes; part of `deepinfer bench ops`.
#pragma once

#include "bench/op_runner.h"

namespace di::bench {

/// "sparse_attention" (64 heads of 512, 128 window and 512 FP4 entries; `share` is of the peak in
/// double, half of that in fp32) and "index_select" (32 heads of 128; `share` is of the fp32 peak,
/// which products of small integers may exceed), for the rows that the options name.
void bench_attention(OpRunner& runner);

}  // namespace di::bench
