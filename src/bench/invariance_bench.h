// `deepinfer bench invariance`: what it costs that a row's bits depend on no other row, nor on the
// instruction set.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/memory_bench.h"

namespace di::bench {

struct InvarianceBenchOptions {
  int threads = 0;                             ///< 0: every processor of this process
  std::vector<int64_t> rows = {1, 4, 16, 64};  ///< of a decode step
  double seconds = 0.2;                        ///< of repetitions for each result
  int64_t bytes = int64_t{128} << 20;          ///< of copies of a matrix, more than caches hold
};

/// Every weight matrix of one layer of DeepSeek-V4.1-Flash, ours beside free_linear(), in turns.
/// Emits a line for each matrix and number of rows of a step, "invariance/MATRIX": us (ours),
/// free_us (the free one; its activations are prepared before the clock starts, ours are not) and
/// cost (us over the smaller of the two, less 1: who is free may keep ours, too). An expert's
/// matrices get the rows that an expert gets in such a step. Then "invariance/layer": the sum over
/// the layer, experts as often as the step's rows choose distinct ones (StepBytes).
///
/// Not compared: attention, norms, routing, hyper-connections. Throws Error{kUnsupported} on a
/// processor without AVX-512 BF16.
void bench_invariance(const InvarianceBenchOptions& options, const Emit& emit);

}  // namespace di::bench
