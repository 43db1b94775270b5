// `deepinfer bench ops`: the hot ops at the model's real widths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/isa.h"
#include "bench/memory_bench.h"

namespace di::bench {

struct OpsBenchOptions {
  Isa isa = Isa::kAvx2;
  int threads = 0;  ///< 0: every processor of this process
  std::vector<int64_t> rows = {1, 2, 4, 8, 16, 64, 512};
  std::string only;                    ///< name of one benchmark; empty: all
  int64_t bytes = int64_t{256} << 20;  ///< weights of a benchmark, copies of one matrix
  double seconds = 0.4;                ///< of repetitions for each result
};

/// Measures the machine's limits, then every op on synthetic weights in memory (synthetic.h).
/// `us` is the best time of one call, `gbps` counts packed weights once a call, `gflops` two
/// operations for each product, `share` the larger of gbps and gflops over this run's limits.
void bench_ops(const OpsBenchOptions& options, const Emit& emit);

}  // namespace di::bench
