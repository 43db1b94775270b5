// Model: a loaded text model, and its forward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/kv_cache.h"
#include "checkpoint/checkpoint.h"
#include "config/layer_role.h"
#include "model/engram_hash.h"
#include "model/observer.h"
#include "model/step.h"
#include "model/weights.h"

namespace di::model {

/// Everything about a model that no step changes.
struct Model {
  ModelConfig config;
  std::vector<LayerRole> roles;  ///< [num_hidden_layers]
  Weights weights;
  EngramHasher engram_hasher;
  std::vector<float> base_frequencies;  ///< rotary, layers without compression
  std::vector<float> yarn_frequencies;  ///< rotary, compressed layers
};

/// Builds a model from an open checkpoint, which must outlive it. `engram_token_map` may be empty
/// for a model without Engram.
Model load_model(
    const checkpoint::Checkpoint& checkpoint,
    std::vector<int32_t> engram_token_map,
    const ops::OpTable& ops,
    ThreadPool& pool,
    const checkpoint::LoadProgress& progress
);

/// What a pass runs with.
struct ForwardOptions {
  Replay replay = {};
  bool draft_taps = false;  ///< compute main_hidden, the drafter's input
  Observer* observer = nullptr;
};

/// One forward pass over the rows of `step`: writes the caches of every row and returns the logits
/// that were asked for. A row's results depend on its own sequence alone, bit for bit.
///
/// Errors: Error{kInvalidArgument} when a step asks for logits of rows that bounded replay skips.
/// Thread: one pass at a time for one KvCache and Exec.
StepOutput forward(
    const Model& model,
    const Step& step,
    cache::KvCache& cache,
    const ops::OpTable& ops,
    ops::Exec& exec,
    const ForwardOptions& options = {}
);

}  // namespace di::model
