// Benchmarks on a GPU: every op at the real sizes, and whole layers of the real width.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "bench/memory_bench.h"

namespace di::bench::cuda {

/// Runs the benchmarks of the families whose name begins with `only` (all when it is empty). One
/// JSON line a measurement: op, shape, rows, us (median), tbps and its share of this run's read
/// rate, tflops.
void bench_ops(const std::string& only, const Emit& emit);

/// What it costs that a row's bits depend on no other row. A matrix is cut along k into slices that
/// its size alone decides; a kernel that owed nothing would cut it as suits the number of rows. One
/// line a matrix and number of rows: us with our slices, free_us with the fastest of up to 20,
/// batch_cost (their quotient less 1), slices and free_slices; then "invariance/layer", the sums
/// over the matrices of a layer that selects, but the experts'. In all other ops the order of sums
/// costs nothing that could be chosen by rows (docs/benchmarks/cuda.md).
void bench_invariance(const Emit& emit);

/// Loads a temporary file of `bytes` in `folder` from its mapping onto the device, once as it is
/// and once packed as FP4 matrices: the best of five times, each of a mapping of its own. Fields
/// name, threads, bytes, us, gbps, copy_gbps (of a copy of pinned memory in the same run) and share
/// of it. Throws Error{kIo}.
void bench_load(const std::string& folder, int64_t bytes, ThreadPool& pool, const Emit& emit);

/// What the layers are run with.
struct LayerOptions {
  std::string shape = "v4.1-flash";
  int64_t layers = 2;
  int64_t context = 4096;                    ///< tokens in each sequence's cache before the rows
  std::vector<int64_t> sequences = {1, 64};  ///< of one row each
  std::vector<int64_t> chunks = {4096};      ///< rows of a lone sequence
  bool by_op = false;                        ///< a line for each op too
  bool canonical = false;                    ///< the arithmetic of the processor
};

/// Layers of the real width with synthetic weights, recorded as a graph and played: microseconds a
/// layer beside bytes / read rate and FLOPs.
void bench_layer(const LayerOptions& options, const Emit& emit);

}  // namespace di::bench::cuda
