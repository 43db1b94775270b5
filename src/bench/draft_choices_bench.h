// `deepinfer bench draft-choices`: what steps of the release's width cost with drafts, and what
// ways to choose drafts would gain there at a set acceptance.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "bench/memory_bench.h"
#include "ops/ops.h"

namespace di::bench {

struct DraftChoicesOptions {
  std::vector<int64_t> sequences = {1, 8, 64};
  std::vector<double> means = {0.6, 0.75, 0.9};  ///< of the confidences
  double concentration = 4;                      ///< of their Beta laws, α + β
  int64_t few_layers = 3;                        ///< the drafter looks back on three
  int64_t many_layers = 6;
  int64_t num_experts = 0;      ///< routed experts of a layer at most; 0: the release's
  int64_t context = 1024;       ///< tokens in each cache before the first decode step
  int64_t num_steps = 24;       ///< to measure of each kind, after 6 that warm up
  int64_t random_steps = 4000;  ///< to evaluate for each law
  uint64_t seed = 1;
};

/// Measures decode steps of both numbers of synthetic layers: with each number of drafts verified
/// and new ones made, and plain ones; the drafting pass is the difference of steps that verify
/// none. A line `draft_step` each: layers, sequences, drafts, drafting, rows, us, device_us. Then a
/// line `draft_costs` for each number of sequences, of the release's layers by costs_of_layers():
/// rows_us by drafts, drafting_us. Then a line `draft_choices` for each number of sequences, mean
/// and way to choose: verified (drafts of a sequence and step), tokens (of a sequence and step),
/// us, tokens_per_s, over_off, over_static (the most drafts), fewer_verified (share, against the
/// same). Throws as bench_step().
void bench_draft_choices(
    const DraftChoicesOptions& options, const ops::OpTable& ops, ThreadPool& pool, const Emit& emit
);

}  // namespace di::bench
