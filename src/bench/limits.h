// What this machine can do at most: the denominators of every benchmark's `share`.
#pragma once

#include <cstdint>

#include "base/isa.h"
#include "base/thread_pool.h"
#include "bench/timing.h"

namespace di::bench {

/// Measured ceilings of a set of threads.
struct Limits {
  double read_gbps = 0;   ///< reading memory that no cache holds
  double fma_gflops = 0;  ///< fp32 fused multiply-adds in registers, two operations each
};

/// Reads `bytes` of memory, more than the caches hold, in turns on all threads of the pool; GB/s of
/// the best turn.
double measure_read(ThreadPool& pool, int64_t bytes, const Patience& patience = {});

/// fp32 fused multiply-adds of `isa` on all threads of the pool; GFLOP/s of the best sample.
double measure_fma(ThreadPool& pool, Isa isa, const Patience& patience = {});

/// Both, in about a second.
Limits measure_limits(ThreadPool& pool, Isa isa);

}  // namespace di::bench
