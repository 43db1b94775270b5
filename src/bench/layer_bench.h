// `deepinfer bench layer`: whole layers of the release's width, as a step runs them.
#pragma once

#include <string>
#include <vector>

#include "base/isa.h"
#include "bench/memory_bench.h"

namespace di::bench {

struct LayerBenchOptions {
  Isa isa = Isa::kAvx2;
  int threads = 0;  ///< 0: every processor of this process
  std::string shape = "v4.1-flash";
  std::vector<int64_t> rows = {1, 512};  ///< new rows of one sequence
  int64_t context = 4096;                ///< tokens in the cache before them
  double seconds = 3;                    ///< of repetitions for each result
};

/// Measures the machine's limits and runs two synthetic layers for each row count. Emits one result
/// "layer" (us: of one layer, the mean of the two; gbps: distinct weight bytes; share: the larger
/// of gbps and gflops over this run's limits), then one "layer/OP" for each op (share: of the
/// layer's time) and "layer/gaps" (time outside all ops).
void bench_layer(const LayerBenchOptions& options, const Emit& emit);

}  // namespace di::bench
