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

/// Every weight matrix of one layer of DeepSeek-V4.1-Flash, ours beside free_linear(). Emits a line
/// for each matrix and number of rows of a step, "invariance/MATRIX":
///
/// - us: ours, the same bits in any batch and on any instruction set
/// - fixed_us: the same bits in any batch (SumOrder::kFixed)
/// - free_us: no such promise (SumOrder::kFree)
/// - batch_cost: the best that is the same in any batch over the best of all, less 1: the price of
///   one text. Who promises nothing may use any of the three.
/// - exact_cost: ours over the best that is the same in any batch, less 1: the price of bits that
///   do not depend on the instruction set and equal the oracle's
///
/// Activations of free_linear() are prepared before the clock starts, ours are not. An expert's
/// matrices get the rows that an expert gets in such a step. Then "invariance/layer": the sums over
/// the layer, experts as often as the step's rows choose distinct ones (StepBytes).
///
/// Not compared: attention, norms, routing, hyper-connections. Throws Error{kUnsupported} on a
/// processor without AVX-512 BF16.
void bench_invariance(const InvarianceBenchOptions& options, const Emit& emit);

}  // namespace di::bench
