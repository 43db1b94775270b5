// How many blocks an engine gets, and whether all of it fits this machine; known before a weight is
// read.
#pragma once

#include <cstdint>

#include "checkpoint/checkpoint.h"
#include "engine/options.h"
#include "model/memory_plan.h"
#include "ops/ops.h"

namespace di::engine {

/// The cache's size and the memory of everything.
struct CacheSize {
  int64_t num_blocks = 0;
  int64_t num_slots = 0;  ///< a few more than max_num_seqs when steps are asynchronous: an ended
                          ///< sequence holds its slot until its last planned step has retired
  bool engram_on_host = false;  ///< a device reads Engram's tables in the machine's memory
  model::MemoryPlan plan;
};

/// State slots of an engine: one for each sequence, and spare ones for asynchronous steps.
int64_t num_state_slots(const EngineOptions& options);

/// The blocks that `options` ask for; or, when they leave it open, what max_num_seqs sequences of
/// `context` tokens can need, at most what memory_utilization of `available` bytes has room for.
/// Throws Error{kOutOfMemory} with every number when not even one sequence fits, and
/// Error{kInvalidArgument} when num_blocks is given and holds no whole sequence, or engram_memory
/// names a device that the backend has not. `num_drafts`: that a sequence makes at once.
/// `measured`: what the steps of a device take.
CacheSize plan_cache(
    const EngineOptions& options,
    const checkpoint::Checkpoint& checkpoint,
    const ops::OpTable& ops,
    int64_t context,
    int64_t available,
    const std::optional<model::StepMemory>& measured = {},
    int64_t num_drafts = 0
);

}  // namespace di::engine
