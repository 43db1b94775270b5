// `deepinfer bench decode-batch`: what a batch of decode rows gains at the release's width, beside
// what the bytes of its weights and caches permit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/isa.h"
#include "bench/memory_bench.h"
#include "bench/step_bytes.h"
#include "bench/synthetic_model.h"

namespace di::bench {

struct DecodeBatchOptions {
  Isa isa = Isa::kAvx2;
  int threads = 0;  ///< 0: every processor of this process
  std::string shape = "v4.1-flash";
  std::vector<int64_t> sequences = {1, 2, 4, 8, 16, 32};  ///< one row each
  int64_t context = 4096;                                 ///< tokens in the cache before it
  double seconds = 2;                                     ///< of repetitions for each result
};

/// The model of bytes of the synthetic layers, for sequences of `context` tokens.
StepBytes synthetic_step_bytes(const SyntheticModel& synthetic, int64_t context);

/// Runs two synthetic layers for each number of sequences, which must not be empty. Emits a line
/// each: us (a layer, the mean of the two), rows_per_s (through a layer), gain (rows_per_s over
/// that of the first line), experts and experts_expected (distinct, of a layer: in this run, and in
/// the mean of random choices), bytes (of a layer, by this run's experts), bytes_gain (what these
/// bytes permit over the first line) and bytes_gain_expected (the same by the expected experts),
/// gbps (those bytes over the time) and share (gbps of this machine's read bandwidth).
void bench_decode_batch(const DecodeBatchOptions& options, const Emit& emit);

}  // namespace di::bench
