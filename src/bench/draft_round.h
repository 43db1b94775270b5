// One round of `bench drafts`: an engine answers the prompts of a kind.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/draft_prompts.h"
#include "bench/drafts_bench.h"
#include "engine/engine.h"

namespace di::bench {

/// Token ids by request.
using Texts = std::map<std::string, std::vector<int32_t>>;

/// What one mode did in one round.
struct DraftRound {
  double tokens_per_s = 0;
  double cpu_s_per_token = 0;  ///< of all threads of the process, meanwhile
  int64_t output_tokens = 0;
  double keys_per_row = 0;  ///< tokens that a decode row sees, mean
  Texts texts = {};
  engine::Stats stats = {};
};

/// Answers the prompts of a kind, `sequences` at once: who ends is followed by the next one, and
/// only what comes while all have their first token is timed.
DraftRound answer_prompts(
    engine::Engine& engine,
    const DraftsBenchOptions& options,
    const DraftPrompts& prompts,
    int64_t sequences
);

}  // namespace di::bench
