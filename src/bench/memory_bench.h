// `deepinfer bench memory`: the machine's ceilings.
#pragma once

#include <functional>

#include "base/isa.h"
#include "base/json.h"

namespace di::bench {

/// Receives one result: an object with the fields name, backend, isa, rows, shape, us, gbps,
/// gflops, share. Fields without a meaning for a benchmark are 0.
using Emit = std::function<void(const Json&)>;

struct MemoryBenchOptions {
  Isa isa = Isa::kAvx2;
  int max_threads = 0;               ///< 0: every processor of this process
  int64_t bytes = int64_t{1} << 30;  ///< memory to read, shared among the threads
};

/// Read bandwidth with 1, 2, 4 ... max_threads threads ("read", `rows` is the number of threads,
/// `share` that of the best) and the fp32 multiply-add peak ("fma").
void bench_memory(const MemoryBenchOptions& options, const Emit& emit);

}  // namespace di::bench
