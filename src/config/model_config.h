// What config.json says about a model: plain values, one struct a part, each field named as its
// key. Parsed and checked once; whoever holds a ModelConfig may rely on every rule in
// model_config.cc and model_rules.cc. Who reads what from whom is worked out in layer_role.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace di {

/// Token ids with a meaning of their own, each below vocab_size.
struct SpecialTokens {
  int64_t bos_token_id = 0;
  int64_t eos_token_id = 0;
  int64_t pad_token_id = 0;
  int64_t image_token_id = -1;  ///< -1 when the model has no vision part
};

/// YaRN: how the rotary frequencies of compressed layers are stretched.
struct RopeScaling {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  int64_t original_max_position_embeddings = 0;
};

/// Attention of every layer: low-rank queries, one shared K = V latent, grouped output.
struct AttentionConfig {
  int64_t num_attention_heads = 0;
  int64_t head_dim = 0;            ///< channels of a head and of the latent; a multiple of 32
  int64_t qk_rope_head_dim = 0;    ///< the last channels of a head, rotated by position; even
  int64_t q_lora_rank = 0;         ///< a multiple of 32
  int64_t o_lora_rank = 0;         ///< per output group; a multiple of 32
  int64_t o_groups = 0;            ///< divides num_attention_heads
  int64_t sliding_window = 0;      ///< newest tokens that every layer sees uncompressed
  double rope_theta = 0;           ///< base of layers without compression (no YaRN)
  double compress_rope_theta = 0;  ///< base of compressed layers (with YaRN)
  RopeScaling rope_scaling;
  std::vector<int64_t> compress_ratios;      ///< backbone then drafts; 0 none, else tokens an entry
  std::vector<int64_t> kv_source_layer_ids;  ///< layers that compress; ascending
  bool use_fp4_sparse_kv = true;  ///< compressed entries in FP4 (288 bytes at 512 channels) or FP8

  int64_t nope_head_dim() const { return head_dim - qk_rope_head_dim; }
  int64_t query_size() const { return num_attention_heads * head_dim; }
  int64_t output_size() const { return o_groups * o_lora_rank; }
  int64_t group_input_size() const { return query_size() / o_groups; }
};

/// Which compressed entries a query reads. All zero in a model without compressed layers.
struct IndexerConfig {
  std::vector<int64_t> index_source_layer_ids;  ///< layers that select; ascending
  int64_t index_n_heads = 0;
  int64_t index_head_dim = 0;  ///< a multiple of 32
  int64_t index_topk = 0;
  /// The layer whose best blocks bound the search of every later index source; none: no bound.
  std::optional<int64_t> candidate_source_layer_id;
  int64_t candidate_topk_blocks = 0;  ///< blocks kept
  int64_t candidate_block_size = 0;   ///< entries a block

  int64_t query_size() const { return index_n_heads * index_head_dim; }
};

/// Routed and shared experts. The router is sqrt(softplus) with a selection bias, and the weights
/// of the chosen are normalised.
struct MoeConfig {
  int64_t moe_intermediate_size = 0;  ///< inner width of one expert; a multiple of 32
  int64_t n_routed_experts = 0;
  int64_t n_shared_experts = 0;  ///< 1
  int64_t num_experts_per_tok = 0;
  double routed_scaling_factor = 1;
  double swiglu_limit = 0;  ///< clamp of gate and up
};

/// Manifold-constrained hyper-connections: the parallel residual streams.
struct HyperConnectionConfig {
  int64_t hc_mult = 0;  ///< streams
  int64_t hc_sinkhorn_iters = 0;
  double hc_eps = 0;

  /// Outputs of one mixing projection: pre (m), post (m) and comb (m·m).
  int64_t mix_size() const { return hc_mult * (hc_mult + 2); }
};

/// n-gram memory. Absent when engram_layer_ids is empty.
struct EngramConfig {
  std::vector<int64_t> engram_layer_ids;       ///< layers with a table in front; ascending
  std::vector<int64_t> engram_num_embeddings;  ///< rows of each layer's table
  int64_t engram_max_ngram_size = 0;           ///< orders are 2 … this
  int64_t engram_vocab_size = 0;               ///< the primes of the hash are sought from here up
  int64_t engram_n_heads = 0;                  ///< rows looked up for each order
  int64_t engram_head_dim = 0;                 ///< columns of a row; a multiple of 32
  int64_t engram_pad_token_id = 0;
  int64_t engram_compressed_vocab_size = 0;  ///< classes of the token map

  bool enabled() const { return !engram_layer_ids.empty(); }
  /// Rows looked up for one token in one layer.
  int64_t rows_per_token() const { return (engram_max_ngram_size - 1) * engram_n_heads; }
  /// Columns of those rows side by side.
  int64_t lookup_size() const { return rows_per_token() * engram_head_dim; }
};

/// DSpark draft stages. Absent when num_nextn_predict_layers is 0.
struct DraftConfig {
  int64_t num_nextn_predict_layers = 0;
  int64_t dspark_block_size = 0;  ///< tokens drafted at once
  int64_t dspark_noise_token_id = 0;
  std::vector<int64_t>
      dspark_target_layer_ids;  ///< layers whose inputs feed the drafter; ascending
  int64_t dspark_markov_rank = 0;
  int64_t dspark_n_routed_experts = 0;
  int64_t dspark_num_experts_per_tok = 0;

  bool enabled() const { return num_nextn_predict_layers > 0; }
  int64_t num_targets() const { return static_cast<int64_t>(dspark_target_layer_ids.size()); }
};

/// The image encoder.
struct VisionConfig {
  int64_t num_hidden_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t intermediate_size = 0;
  int64_t patch_size = 0;  ///< pixels
  double rope_theta = 0;
  int64_t downsample_ratio = 0;  ///< patches a side merged into one token
  int64_t max_image_tokens = 0;
  int64_t min_pixels = 0;
  std::optional<double> max_wh_ratio;

  int64_t head_dim() const { return hidden_size / num_attention_heads; }
  int64_t patch_values() const { return 3 * patch_size * patch_size; }
  int64_t merged_size() const { return downsample_ratio * downsample_ratio * hidden_size; }
};

/// Which layout of special tokens the tokenizer must have.
enum class TokenizerCompatibility { kRelease, kNative };

/// One model of the DeepSeek-V4.1 family.
struct ModelConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;        ///< a multiple of 32
  int64_t num_hidden_layers = 0;  ///< of the backbone; draft stage s is layer num_hidden_layers + s
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0;
  TokenizerCompatibility tokenizer_compatibility = TokenizerCompatibility::kRelease;

  SpecialTokens tokens;
  AttentionConfig attention;
  IndexerConfig indexer;
  MoeConfig moe;
  HyperConnectionConfig hc;
  EngramConfig engram;
  DraftConfig draft;
  std::optional<VisionConfig> vision;

  /// Backbone layers and draft stages together.
  int64_t num_layers() const { return num_hidden_layers + draft.num_nextn_predict_layers; }
};

/// Reads the text of a config.json. Throws Error{kInvalidFile} for a missing, unknown, ill-typed,
/// out-of-range or contradictory key and Error{kUnsupported} for a value that is legal but not ours
/// to run; the message starts with `where` and names key, finding and expectation.
ModelConfig parse_model_config(std::string_view text, std::string_view where);

/// parse_model_config of `path`.
ModelConfig load_model_config(const std::string& path);

}  // namespace di
