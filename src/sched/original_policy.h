// A model of the policy that this engine replaces, with the faults that shape its figures, so that
// both can be compared on one traffic. Its source was not used: the rules are those of a published
// description.
//
// Steps are either prompt steps or decode steps. A prompt step is tried when the count of decode
// steps since the last one is a multiple of 70 (and every rank wants one) or of 100 (and some rank
// does). A rank wants one when at most 0.9 of its blocks are used. The whole prompt's blocks are
// taken with its first chunk. When no block is free, the sequence with the longest output gives up
// its own and is computed again; an aborted one that has run a chunk never returns them.
#pragma once

#include "sched/simulation.h"

namespace di::sched {

struct OriginalOptions {
  int64_t max_num_batched_tokens = 2048;
  int64_t max_num_seqs = 256;
  bool chunked_prefill = true;
  int64_t num_drafts = 0;            ///< of each decode step; all are accepted
  bool ready_one_step_late = false;  ///< prompts can be scheduled from their second step on
};

/// Runs `traffic` (one choice each, no priorities, no deadlines) on that policy. A machine's lag of
/// 1 delays the stop of decode steps, never that of prompt steps.
SimulationResult simulate_original(
    const Traffic& traffic, const OriginalOptions& options, const SimulatedMachine& machine
);

}  // namespace di::sched
