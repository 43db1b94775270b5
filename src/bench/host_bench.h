// `deepinfer bench host`: what a step costs the engine's own thread, without a model's forward
// pass.
#pragma once

#include <cstdint>
#include <string>

#include "bench/memory_bench.h"

namespace di::bench {

struct HostBenchOptions {
  std::string model;       ///< folder: its tokenizer makes the texts
  int64_t num_seqs = 256;  ///< that decode at once
  int64_t num_steps = 4000;
  bool detokenize = true;
};

/// Decodes with a device that draws at once. `plan_us` covers planning, orders and statistics of a
/// step, `apply_us` results, texts and outputs; each with p50, p90 and p99, and their sum.
void bench_host(const HostBenchOptions& options, const Emit& emit);

}  // namespace di::bench
