// The weights of the text model as ops read them. Names follow the checkpoint's; shapes are those
// of the model specification, section 2.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/loader.h"
#include "ops/ops.h"

namespace di::model {

/// One mHC site's parameters.
struct SiteWeights {
  ops::Weight fn;              ///< kF32 [c · (2 + c), c · hidden_size]
  View<const float, 1> base;   ///< [c · (2 + c)]
  View<const float, 1> scale;  ///< [3]
};

struct AttentionWeights {
  ops::Weight wq_a;                ///< [q_lora_rank, hidden_size]
  ops::Weight wq_b;                ///< [heads · head_dim, q_lora_rank]
  ops::Weight wkv;                 ///< [head_dim, hidden_size]
  ops::Weight wo_a;                ///< [o_groups · o_lora_rank, heads · head_dim / o_groups]
  ops::Weight wo_b;                ///< [hidden_size, o_groups · o_lora_rank]
  View<const bf16, 1> q_norm;      ///< [q_lora_rank]
  View<const bf16, 1> kv_norm;     ///< [head_dim]
  View<const float, 1> attn_sink;  ///< [heads]
};

/// Of a KV source: pools tokens into compressed entries and derives their index keys.
struct CompressorWeights {
  ops::Weight wkv;             ///< kBf16 [head_dim, hidden_size]
  ops::Weight wgate;           ///< the same shape; ratio > 1 only
  View<const bf16, 1> norm;    ///< [head_dim]
  ops::Weight wk;              ///< kBf16 [index_head_dim, head_dim]
  View<const bf16, 1> k_norm;  ///< [index_head_dim]
};

/// Of an index source: the query side of the selection.
struct IndexerWeights {
  ops::Weight wq_b;          ///< [index_n_heads · index_head_dim, q_lora_rank]
  ops::Weight weights_proj;  ///< kBf16 [index_n_heads, hidden_size]
};

struct EngramWeights {
  ops::EngramTable table;        ///< in the mapped file for ops of the processor; a device has a
                                 ///< copy, or reads the file's pinned pages
  ops::Weight wkv;               ///< [(c + 1) · hidden_size, orders · heads · head_dim]
  View<const bf16, 2> q_weight;  ///< [c, hidden_size]
  View<const bf16, 2> k_weight;  ///< [c, hidden_size]
};

struct MoeWeights {
  ops::Weight gate;              ///< kBf16 [n_routed_experts, hidden_size]
  View<const float, 1> bias;     ///< [n_routed_experts]
  View<const float, 1> bias_vl;  ///< [n_routed_experts]; empty without a vision part
  std::vector<ops::ExpertWeights> experts;
  ops::ExpertWeights shared_experts;
};

/// One backbone layer or draft stage, parts in the order of its forward pass.
struct LayerWeights {
  std::optional<EngramWeights> engram;
  SiteWeights hc_attn;
  View<const bf16, 1> attn_norm;  ///< [hidden_size]
  AttentionWeights attn;
  std::optional<CompressorWeights> compressor;
  std::optional<IndexerWeights> indexer;
  SiteWeights hc_ffn;
  View<const bf16, 1> ffn_norm;  ///< [hidden_size]
  MoeWeights ffn;
};

/// Of the drafter. Its embedding and head are the backbone's.
struct DraftWeights {
  ops::Weight main_proj;             ///< [hidden_size, targets · hidden_size]
  View<const bf16, 1> main_norm;     ///< [hidden_size]
  std::vector<LayerWeights> stages;  ///< with fewer experts, and without the optional parts
  View<const bf16, 1> norm;          ///< [hidden_size]
  View<const bf16, 2> markov_embed;  ///< [vocab_size, markov_rank]
  ops::Weight markov_head;           ///< kBf16 [vocab_size, markov_rank]
  ops::Weight confidence;            ///< kBf16 [1, hidden_size + markov_rank]
};

/// Owns what had to be copied or packed: everything, in a device's memory. What the processor's ops
/// can read in place points into the checkpoint's mapping, which must outlive it.
struct Weights {
  View<const bf16, 2> embed;  ///< [vocab_size, hidden_size]
  std::vector<LayerWeights> layers;
  View<const bf16, 1> norm;  ///< [hidden_size]
  ops::Weight head;          ///< kBf16 [vocab_size, hidden_size]
  std::optional<DraftWeights> draft;

  std::shared_ptr<std::byte> storage;  ///< one allocation for all copies; shared with nobody
  int64_t storage_bytes = 0;
  std::vector<std::shared_ptr<const std::byte>> pinned;  ///< pages that a device reads in place
};

/// Which parts of a checkpoint are loaded besides the backbone.
struct LoadOptions {
  bool drafts = false;          ///< the drafter, when the model has one
  bool engram_on_host = false;  ///< a device reads the tables of Engram where the file is mapped
};

/// Bytes that load_weights will allocate for this backend: the packed matrices and small vectors.
int64_t weight_storage_bytes(
    const checkpoint::Checkpoint& checkpoint,
    const ops::OpTable& ops,
    const LoadOptions& options = {}
);

/// Weights whose storage has addresses and no content, for passes that are recorded and not run.
Weights outline_weights(
    const checkpoint::Checkpoint& checkpoint,
    const ops::OpTable& ops,
    const LoadOptions& options = {}
);

/// Binds every tensor of the text model, packing matrices where the backend wants its own layout.
/// No value is changed. Throws Error{kOutOfMemory} with the numbers when the memory is refused.
Weights load_weights(
    const checkpoint::Checkpoint& checkpoint,
    const ops::OpTable& ops,
    ThreadPool& pool,
    const checkpoint::LoadProgress& progress,
    const LoadOptions& options = {}
);

}  // namespace di::model
