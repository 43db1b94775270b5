// What a model will need of this machine's memory, known before a weight is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cache/layout.h"
#include "checkpoint/checkpoint.h"
#include "ops/ops.h"

namespace di::model {

/// What the steps of a device take besides weights and cache, as they were recorded without being
/// run.
struct StepMemory {
  int64_t scratch = 0;  ///< of the worst step, its logits included
  int64_t graphs = 0;   ///< recorded steps
  int64_t buffers = 0;  ///< tokens, block tables and sampling of all slots, results, constants
};

/// What is to fit at once.
struct MemoryLimits {
  int64_t context = 0;  ///< tokens of a sequence
  int64_t num_sequences = 1;
  int64_t chunk = 0;            ///< rows of a step at most
  int64_t num_blocks = 0;       ///< of the cache; 0: every sequence may fill its context
  int64_t num_logit_rows = 0;   ///< of a step at most; 0: one a sequence
  int64_t num_drafts = 0;       ///< tokens that a sequence drafts at once; 0: no drafter is loaded
  bool engram_on_host = false;  ///< LoadOptions::engram_on_host
  std::optional<StepMemory> measured = {};  ///< nothing: scratch is estimated
};

/// Bytes by purpose. Pages of the checkpoint that are read in place (embedding, Engram tables) are
/// not counted: the system may drop and reread them.
struct MemoryPlan {
  int64_t weights = 0;  ///< packed matrices and copied vectors
  int64_t blocks = 0;   ///< compressed KV and index keys
  int64_t slots = 0;    ///< window rings and carries
  int64_t scratch = 0;  ///< activations of one step: measured, or an estimate from above
  int64_t logits = 0;   ///< of one step
  int64_t graphs = 0;   ///< recorded steps; of a device alone
  int64_t buffers = 0;  ///< what steps leave behind for later ones; of a device alone

  int64_t total() const { return weights + blocks + slots + scratch + logits + graphs + buffers; }
};

/// Adds up what `ops` will allocate for these limits.
MemoryPlan plan_memory(
    const checkpoint::Checkpoint& checkpoint, const ops::OpTable& ops, const MemoryLimits& limits
);

/// Throws Error{kOutOfMemory} naming every part of the plan when it exceeds `available`.
void require_fit(const MemoryPlan& plan, const MemoryLimits& limits, int64_t available);

/// "weights 1.5 GB, KV blocks 640.0 kB, state slots …, scratch …, logits …", and what a device has
/// besides.
std::string plan_line(const MemoryPlan& plan);

/// "1.5 GB", "640 kB".
std::string human_bytes(int64_t bytes);

}  // namespace di::model
