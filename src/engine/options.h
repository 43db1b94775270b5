// EngineOptions: everything that shapes an engine, fixed once it is open.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "model/step.h"
#include "sampling/verification.h"
#include "sched/draft_control.h"

namespace di::engine {

/// One field a flag, of the same name; option_table.h says everything about each.
struct EngineOptions {
  // The model and where it runs.
  std::string model = {};       ///< folder; empty: the bundled default model
  std::string backend = "cpu";  ///< cpu, cuda, or ref: the slow, literal oracle
  std::string isa = "auto";     ///< kernels of the cpu backend: auto, avx2, avx512, vnni, amx
  std::string cuda_arithmetic = "fast";  ///< of the cuda backend: fast, or canonical
  int threads = 0;                       ///< compute threads; 0: one for each processor

  // How much of it.
  int64_t context = 0;  ///< tokens of prompt and output together; 0: the model's, at most 8192
  int64_t max_num_seqs = 64;             ///< sequences that run at once
  int64_t max_num_batched_tokens = 512;  ///< rows of one step
  int64_t chunk = 0;       ///< prompt rows of one sequence in one step at most; 0: no such limit
  int64_t num_blocks = 0;  ///< of 128 tokens; 0: what the sequences can need and memory allows
  double memory_utilization = 0.9;     ///< share of the available memory that may be planned
  std::string engram_memory = "auto";  ///< where a device has Engram's tables: auto, device, host

  // Scheduling.
  bool async_scheduling = true;  ///< plan step n + 1 while step n runs; the text is the same
  double max_step_ms = 0;        ///< target for steps that carry decode rows; 0: none
  double patience_seconds = 10;  ///< a request without a deadline is due this long after arrival
  int64_t max_queued_requests = 4096;            ///< waiting at once; more are refused
  int64_t max_queued_tokens = int64_t{1} << 24;  ///< prompt tokens waiting at once

  // Drafts.
  std::string drafts = "off";  ///< off, adaptive, or how many each sequence verifies: 1 … 5
  std::string verification = "auto";  ///< what keeps a draft: auto, exact_seed or block
  std::string draft_costs = {};       ///< folder where what steps cost is kept from run to run;
                                      ///< empty: the user's cache; none: it is not kept

  // Approximation of long prompts; off is exact.
  std::string replay = "off";  ///< off, compact or mask
  int64_t replay_keep = 0;     ///< last prompt rows computed in full; 0: as few as allowed

  // Numbers.
  uint64_t seed = 0;      ///< requests without a seed draw theirs from this one
  double peak_flops = 0;  ///< of the machine, FLOP/s; utilisation is reported when it is known
  bool check_integrity = kCheckByDefault;  ///< check the ledger of memory after each step
  std::string banned_tokens = {};          ///< ids that no request draws: "0..3,7"

  // Record of what happened.
  std::string record = {};      ///< file that every taken request is logged into; empty: none
  bool record_content = false;  ///< log prompts and outputs, too; without them none can be replayed

#ifdef NDEBUG
  static constexpr bool kCheckByDefault = false;
#else
  static constexpr bool kCheckByDefault = true;
#endif
};

/// Throws Error{kInvalidArgument} naming the option that is out of its range.
void validate(const EngineOptions& options);

/// `context` as the engine will have it: given, or the default. Throws when the model ends before.
int64_t resolve_context(const EngineOptions& options, const ModelConfig& config);

/// Drafts that a sequence makes and a step verifies at most, by the model's drafter and the caches.
int64_t most_drafts(const ModelConfig& config);

/// Drafts as the scheduler wants them. Throws when the model has no drafter, or drafts fewer
/// tokens.
sched::DraftControlOptions resolve_drafts(const EngineOptions& options, const ModelConfig& config);

/// `verification` as the sampler wants it.
sampling::VerificationMode resolve_verification(const EngineOptions& options);

/// The ids that `banned_tokens` names. Throws when it is no list of ids of the vocabulary.
std::vector<int32_t> resolve_banned_tokens(const EngineOptions& options, const ModelConfig& config);

/// Bounded replay as the forward pass wants it. Throws when `replay_keep` is too small.
model::Replay resolve_replay(const EngineOptions& options, const ModelConfig& config);

}  // namespace di::engine
