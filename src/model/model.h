// Model: a loaded text model, and its forward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/kv_cache.h"
#include "checkpoint/checkpoint.h"
#include "config/layer_role.h"
#include "model/constants.h"
#include "model/observer.h"
#include "model/step.h"
#include "model/weights.h"

namespace di::model {

/// One Engram layer's hash as ops read it.
struct EngramHashConstants {
  View<const int64_t, 1> multipliers;
  View<const int64_t, 1> primes;
  View<const int64_t, 1> offsets;
};

/// What the hashes of all Engram layers share and differ in.
struct EngramHashing {
  View<const int32_t, 1> token_map;  ///< [vocab_size]: compressed ids
  int64_t pad = 0;                   ///< compressed id of engram_pad_token_id
  std::vector<EngramHashConstants> layers;
};

/// Everything about a model that no step changes.
struct Model {
  ModelConfig config;
  std::vector<LayerRole> roles;  ///< [num_hidden_layers], then one for each draft stage
  Weights weights;
  EngramHashing engram_hashing;
  View<const float, 1> base_frequencies;  ///< rotary, layers without compression
  View<const float, 1> yarn_frequencies;  ///< rotary, compressed layers
  View<const float, 1> equal_shares;      ///< [hc_mult]: 1 / hc_mult each
  Constants constants;                    ///< owns what these views show
};

/// Builds a model from an open checkpoint, which must outlive it. `engram_token_map` may be empty
/// for a model without Engram. Without `options.drafts` the model cannot draft.
Model load_model(
    const checkpoint::Checkpoint& checkpoint,
    const std::vector<int32_t>& engram_token_map,
    const ops::OpTable& ops,
    ThreadPool& pool,
    const checkpoint::LoadProgress& progress,
    const LoadOptions& options = {}
);

/// A model of which everything has its place and nothing its content: for passes that are recorded
/// to see what they take, over a device's `ops`.
Model outline_model(
    const checkpoint::Checkpoint& checkpoint,
    const ops::OpTable& ops,
    const LoadOptions& options = {}
);

/// What a pass runs with.
struct ForwardOptions {
  Replay replay = {};
  bool draft_context = false;    ///< compute main_hidden, the drafter's input, and with a drafter
                                 ///< loaded write its context keys
  bool keep_expert_ids = false;  ///< yield StepOutput::expert_ids
  Observer* observer = nullptr;
};

/// Sets the rotary frequencies, the shares of streams in their mean and, with a token map, the
/// hashes of Engram.
void keep_constants(
    Model& model, const std::vector<int32_t>& engram_token_map, const Memory& memory
);

/// One forward pass over the rows of `step`: writes the caches of every row and returns the logits
/// that were asked for, in exec.scratch: the caller opens an Arena::Scope before and closes it when
/// it has read them. A row's results depend on its own sequence alone, bit for bit.
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
