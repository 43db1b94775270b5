// `deepinfer bench drafts`: what drafts gain on texts of several kinds, beside what the measured
// costs of steps let expect.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/memory_bench.h"
#include "engine/options.h"

namespace di::bench {

struct DraftsBenchOptions {
  engine::EngineOptions engine = {};  ///< its `drafts` is that of each mode
  std::vector<std::string> modes = {"off", "1", "2", "3", "4", "5", "adaptive"};
  std::vector<int64_t> sequences = {1, 8};  ///< that run at once
  int64_t max_tokens = 128;                 ///< of an answer
  int64_t rounds = 3;                       ///< of each mode, in turns; after two that warm up
  double temperature = 0;                   ///< seeds are given, so that texts are one and the same
};

/// Opens an engine for each mode and lets them answer the same prompts (chat, list, code, json) in
/// turns. Emits a line for each kind, number of sequences and mode:
///
/// - name, model, backend, isa, threads, kind, temperature, verification, sequences, drafts
/// - output_tokens; tokens_per_s: the median round's, while all have their first and none has ended
/// - gain: the median over rounds of tokens_per_s / that of the mode off; gain_quartiles
/// - cpu_cost: the median over rounds of the processor's seconds a token / those of the mode off
/// - acceptance (of drafts verified), acceptance_by_position, tokens_per_sequence_step,
///   verified_per_sequence_step, confidence_error, cost_error, advantage, pauses, control_steps
/// - expected_gain: by the costs that the engine of the mode adaptive has measured, at this
///   acceptance and as many rows and keys; gain_share: gain / expected_gain. null for adaptive and
///   without that engine
///
/// First and last a line drafts_costs: what the engine of the mode adaptive knows of steps, us by
/// rows and of drafting.
///
/// Throws Error{kUnsupported} when a text is not that of the mode off, which must come first; of
/// block verification at a temperature texts are others.
///
/// A mode may be given twice: how far the second one's gain is from the first one's is chance.
void bench_drafts(const DraftsBenchOptions& options, const Emit& emit);

}  // namespace di::bench
