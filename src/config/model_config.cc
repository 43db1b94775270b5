// Each key of config.json stands here once, beside its legal range. The ranges are wide enough for
// any model of the family and narrow enough that products of sizes stay far inside int64.
#include "config/model_config.h"

#include "base/json.h"
#include "base/mapped_file.h"
#include "config/key_reader.h"
#include "config/model_rules.h"

namespace di {
namespace {

constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
constexpr int64_t kMaxWidth = int64_t{1} << 17;
constexpr int64_t kMaxLayers = 256;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 4096;
constexpr int64_t kMaxExperts = 1024;
constexpr int64_t kScaleBlock = 32;  // weights and activations share a scale over 32 columns

constexpr IntegerRange kWidth{kScaleBlock, kMaxWidth, kScaleBlock};
constexpr IntegerRange kHeadWidth{kScaleBlock, kMaxHeadDim, kScaleBlock};
constexpr IntegerRange kTokenId{0, kMaxVocabulary - 1};
constexpr IntegerRange kLayerId{0, kMaxLayers - 1};
constexpr NumberRange kEpsilon{1e-30, 1e-2};
constexpr NumberRange kTheta{1, 1e12};

void read_fixed_keys(KeyReader& top, KeyReader& text) {
  top.fixed({
      {"architectures", Json::Array{"DeepseekV41ForCausalLM"}, false},
      {"dtype", "bfloat16", false},
      {"torch_dtype", "bfloat16", false},
      {"tie_word_embeddings", false, false},
  });
  text.fixed({
      {"model_type", "deepseek_v41_text", false},
      {"dtype", "bfloat16", false},
      {"torch_dtype", "bfloat16", false},
      {"tie_word_embeddings", false, false},
      {"num_key_value_heads", 1, true},
      {"hidden_act", "silu", true},
      {"attention_bias", false, true},
      {"attention_dropout", 0, false},
      {"scoring_func", "sqrtsoftplus", true},
      {"topk_method", "noaux_tc", true},
      {"norm_topk_prob", true, true},
      {"gate_temp", 1, false},
      {"hc_shifted", true, false},
      {"dspark_target_attn_input", true, false},
  });
  KeyReader quantization = top.required_object("quantization_config");
  quantization.fixed({
      {"quant_method", "fp8", true},
      {"activation_scheme", "dynamic", true},
      {"weight_block_size", Json::Array{32, 32}, true},
      {"scale_fmt", "ue8m0", true},
      {"expert_dtype", "fp4", true},
  });
  quantization.finish();
}

/// Keys that libraries write into every config.json and that say nothing about the model.
void ignore_library_keys(KeyReader& reader) {
  reader.ignore({
      "_attn_implementation",
      "_attn_implementation_autoset",
      "_from_model_config",
      "_name_or_path",
      "attn_implementation",
      "auto_map",
      "initializer_range",
      "name_or_path",
      "output_attentions",
      "output_hidden_states",
      "return_dict",
      "transformers_version",
      "use_cache",
  });
}

SpecialTokens read_tokens(KeyReader& top, bool has_vision) {
  SpecialTokens tokens;
  tokens.bos_token_id = top.integer("bos_token_id", kTokenId);
  tokens.eos_token_id = top.integer("eos_token_id", kTokenId);
  tokens.pad_token_id = top.integer("pad_token_id", kTokenId);
  if (has_vision) {
    tokens.image_token_id = top.integer("image_token_id", kTokenId);
  } else {
    top.ignore({"image_token_id"});
  }
  return tokens;
}

RopeScaling read_rope_scaling(KeyReader yarn) {
  yarn.fixed({{"rope_type", "yarn", true}});
  RopeScaling scaling;
  scaling.factor = yarn.number("factor", {1, 1e6});
  scaling.beta_fast = yarn.number("beta_fast", {1e-3, 1e6});
  scaling.beta_slow = yarn.number("beta_slow", {1e-3, 1e6});
  scaling.original_max_position_embeddings =
      yarn.integer("original_max_position_embeddings", {1, int64_t{1} << 30});
  yarn.finish();
  return scaling;
}

AttentionConfig read_attention(KeyReader& text) {
  AttentionConfig a;
  a.num_attention_heads = text.integer("num_attention_heads", {1, kMaxHeads});
  a.head_dim = text.integer("head_dim", kHeadWidth);
  a.qk_rope_head_dim = text.integer("qk_rope_head_dim", {2, kMaxHeadDim, 2});
  a.q_lora_rank = text.integer("q_lora_rank", kWidth);
  a.o_lora_rank = text.integer("o_lora_rank", kWidth);
  a.o_groups = text.integer("o_groups", {1, kMaxHeads});
  a.sliding_window = text.integer("sliding_window", {1, 65536});
  a.rope_theta = text.number("rope_theta", kTheta);
  a.compress_rope_theta = text.number("compress_rope_theta", kTheta);
  a.rope_scaling = read_rope_scaling(text.required_object("rope_scaling"));
  a.compress_ratios = text.integers("compress_ratios", {0, 2});
  a.kv_source_layer_ids = text.integers_or_empty("kv_source_layer_ids", kLayerId);
  a.use_fp4_sparse_kv = text.boolean_or("use_fp4_sparse_kv", true);
  return a;
}

IndexerConfig read_indexer(KeyReader& text) {
  IndexerConfig x;
  x.index_source_layer_ids = text.integers_or_empty("index_source_layer_ids", kLayerId);
  if (x.index_source_layer_ids.empty()) {
    text.ignore({"index_n_heads", "index_head_dim", "index_topk"});
  } else {
    x.index_n_heads = text.integer("index_n_heads", {1, 1024});
    x.index_head_dim = text.integer("index_head_dim", kHeadWidth);
    x.index_topk = text.integer("index_topk", {1, 65536});
  }
  if (!text.has("candidate_source_layer_id")) {
    text.ignore({"candidate_source_layer_id", "candidate_topk_blocks", "candidate_block_size"});
    return x;
  }
  x.candidate_source_layer_id = text.integer("candidate_source_layer_id", kLayerId);
  x.candidate_topk_blocks = text.integer("candidate_topk_blocks", {4, 4096, 4});
  x.candidate_block_size = text.integer("candidate_block_size", {8, 16, 8});
  return x;
}

MoeConfig read_moe(KeyReader& text) {
  MoeConfig m;
  m.moe_intermediate_size = text.integer("moe_intermediate_size", kWidth);
  m.n_routed_experts = text.integer("n_routed_experts", {1, kMaxExperts});
  m.n_shared_experts = text.integer("n_shared_experts", {1, 1});
  m.num_experts_per_tok = text.integer("num_experts_per_tok", {1, 64});
  m.routed_scaling_factor = text.number("routed_scaling_factor", {1e-6, 1e6});
  m.swiglu_limit = text.number("swiglu_limit", {1e-3, 1e6});
  return m;
}

HyperConnectionConfig read_hyper_connections(KeyReader& text) {
  HyperConnectionConfig h;
  h.hc_mult = text.integer("hc_mult", {1, 16});
  h.hc_sinkhorn_iters = text.integer("hc_sinkhorn_iters", {1, 1000});
  h.hc_eps = text.number("hc_eps", kEpsilon);
  return h;
}

EngramConfig read_engram(KeyReader& text) {
  EngramConfig e;
  e.engram_layer_ids = text.integers_or_empty("engram_layer_ids", kLayerId);
  if (!e.enabled()) {
    text.ignore({
        "engram_num_embeddings",
        "engram_max_ngram_size",
        "engram_vocab_size",
        "engram_n_heads",
        "engram_head_dim",
        "engram_pad_token_id",
        "engram_compressed_vocab_size",
    });
    return e;
  }
  e.engram_num_embeddings = text.integers("engram_num_embeddings", {1, int64_t{1} << 34});
  e.engram_max_ngram_size = text.integer("engram_max_ngram_size", {2, 16});
  e.engram_vocab_size = text.integer("engram_vocab_size", {1, int64_t{1} << 30});
  e.engram_n_heads = text.integer("engram_n_heads", {1, 256});
  e.engram_head_dim = text.integer("engram_head_dim", kHeadWidth);
  e.engram_pad_token_id = text.integer("engram_pad_token_id", kTokenId);
  e.engram_compressed_vocab_size =
      text.integer("engram_compressed_vocab_size", {1, kMaxVocabulary});
  return e;
}

DraftConfig read_draft(KeyReader& text) {
  DraftConfig d;
  d.num_nextn_predict_layers = text.integer_or("num_nextn_predict_layers", 0, {0, 16});
  if (!d.enabled()) {
    text.ignore({
        "dspark_block_size",
        "dspark_noise_token_id",
        "dspark_target_layer_ids",
        "dspark_markov_rank",
        "dspark_n_routed_experts",
        "dspark_num_experts_per_tok",
    });
    return d;
  }
  d.dspark_block_size = text.integer("dspark_block_size", {1, 64});
  d.dspark_noise_token_id = text.integer("dspark_noise_token_id", kTokenId);
  d.dspark_target_layer_ids = text.integers("dspark_target_layer_ids", kLayerId);
  d.dspark_markov_rank = text.integer("dspark_markov_rank", {1, kMaxWidth});
  d.dspark_n_routed_experts = text.integer("dspark_n_routed_experts", {1, kMaxExperts});
  d.dspark_num_experts_per_tok = text.integer("dspark_num_experts_per_tok", {1, 64});
  return d;
}

VisionConfig read_vision(KeyReader vision) {
  vision.fixed({{"model_type", "deepseek_v41_vision", false}});
  ignore_library_keys(vision);
  VisionConfig v;
  v.num_hidden_layers = vision.integer("num_hidden_layers", {1, kMaxLayers});
  v.hidden_size = vision.integer("hidden_size", {1, kMaxWidth});
  v.num_attention_heads = vision.integer("num_attention_heads", {1, kMaxHeads});
  v.intermediate_size = vision.integer("intermediate_size", {1, kMaxWidth});
  v.patch_size = vision.integer("patch_size", {1, 256});
  v.rope_theta = vision.number("rope_theta", kTheta);
  v.downsample_ratio = vision.integer("downsample_ratio", {1, 16});
  v.max_image_tokens = vision.integer("max_image_tokens", {1, 65536});
  v.min_pixels = vision.integer("min_pixels", {1, int64_t{1} << 30});
  if (vision.has("max_wh_ratio")) v.max_wh_ratio = vision.number("max_wh_ratio", {1, 1e6});
  vision.ignore({"max_wh_ratio"});
  vision.finish();
  return v;
}

void read_text_part(KeyReader& text, ModelConfig& config) {
  config.vocab_size = text.integer("vocab_size", {1, kMaxVocabulary});
  config.hidden_size = text.integer("hidden_size", kWidth);
  config.num_hidden_layers = text.integer("num_hidden_layers", {1, kMaxLayers});
  config.max_position_embeddings = text.integer("max_position_embeddings", {1, int64_t{1} << 30});
  config.rms_norm_eps = text.number("rms_norm_eps", kEpsilon);
  config.attention = read_attention(text);
  config.indexer = read_indexer(text);
  config.moe = read_moe(text);
  config.hc = read_hyper_connections(text);
  config.engram = read_engram(text);
  config.draft = read_draft(text);
}

/// Keys of text_config that only repeat what another key says; they must agree with it.
void check_repeated_keys(KeyReader& text, const ModelConfig& config) {
  for (const auto& [key, value] : {
           std::pair{"bos_token_id", config.tokens.bos_token_id},
           std::pair{"eos_token_id", config.tokens.eos_token_id},
           std::pair{"pad_token_id", config.tokens.pad_token_id},
       }) {
    text.integer_or(key, value, {value, value});
  }
  if (!text.has("index_k_source_layer_ids")) {
    text.ignore({"index_k_source_layer_ids"});
    return;
  }
  Json::Array sources;
  for (const int64_t id : config.attention.kv_source_layer_ids)
    sources.emplace_back(id);
  text.fixed({{"index_k_source_layer_ids", std::move(sources), false}});
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, std::string_view where) {
  const Json json = Json::parse(text, where, {.max_depth = 16, .reject_duplicate_keys = true});
  KeyReader top(json, std::string(where), "");
  top.fixed({{"model_type", "deepseek_v41", true}});
  KeyReader text_part = top.required_object("text_config");
  read_fixed_keys(top, text_part);
  ignore_library_keys(top);
  ignore_library_keys(text_part);

  ModelConfig config;
  const std::string compatibility =
      top.choice_or("tokenizer_compatibility", "release", {"release", "native"});
  config.tokenizer_compatibility = compatibility == "native" ? TokenizerCompatibility::kNative
                                                             : TokenizerCompatibility::kRelease;
  if (const auto vision = top.object("vision_config")) config.vision = read_vision(*vision);
  config.tokens = read_tokens(top, config.vision.has_value());
  read_text_part(text_part, config);
  check_repeated_keys(text_part, config);
  text_part.finish();
  top.finish();
  check_model_rules(config, where);
  return config;
}

ModelConfig load_model_config(const std::string& path) {
  constexpr std::size_t kLongestFile = std::size_t{1} << 20;
  return parse_model_config(read_text_file(path, kLongestFile), path);
}

}  // namespace di
