// Shapes are [outputs, inputs]. An fp8 matrix has one scale for each tile of 32×32; an fp4 matrix
// packs two inputs a byte and has one scale for each 32 inputs of a row.
#include "checkpoint/inventory.h"

#include <utility>

#include <fmt/format.h>

#include "base/math.h"
#include "config/layer_role.h"

namespace di::checkpoint {
namespace {

constexpr int64_t kBlock = 32;  // columns (and rows of fp8) that share a scale

/// Collects tensors under a name prefix; one method for each way a matrix is stored.
class List {
 public:
  explicit List(std::vector<ExpectedTensor>& tensors) : tensors_(&tensors) {}

  /// The same list, with names below `name` and tensors counted as `kind`.
  List at(std::string_view name, TensorKind kind) const {
    List below(*this);
    below.prefix_ = fmt::format("{}{}.", prefix_, name);
    below.kind_ = kind;
    return below;
  }
  List at(std::string_view name) const { return at(name, kind_); }

  void f32(std::string_view name, std::vector<int64_t> shape) const {
    add(name, DType::kF32, std::move(shape));
  }
  void bf16(std::string_view name, std::vector<int64_t> shape) const {
    add(name, DType::kBf16, std::move(shape));
  }

  void fp8(const std::string& name, int64_t out, int64_t in) const {
    add(name + ".weight", DType::kF8E4M3, {out, in});
    add(name + ".scale", DType::kF8E8M0, {ceil_div(out, kBlock), ceil_div(in, kBlock)});
  }
  void fp4(const std::string& name, int64_t out, int64_t in) const {
    add(name + ".weight", DType::kI8, {out, in / 2});
    add(name + ".scale", DType::kF8E8M0, {out, in / kBlock});
  }
  /// An embedding table in FP8 with one scale for each 32 columns of a row.
  void fp8_table(const std::string& name, int64_t rows, int64_t columns) const {
    add(name + ".weight", DType::kF8E4M3, {rows, columns});
    add(name + ".scale", DType::kF8E8M0, {rows, columns / kBlock});
  }

 private:
  void add(std::string_view name, DType dtype, std::vector<int64_t> shape) const {
    tensors_->push_back({fmt::format("{}{}", prefix_, name), dtype, std::move(shape), kind_});
  }

  std::vector<ExpectedTensor>* tensors_;
  std::string prefix_;
  TensorKind kind_ = TensorKind::kEmbedding;
};

void add_attention(const List& attn, const ModelConfig& c) {
  const AttentionConfig& a = c.attention;
  attn.fp8("wq_a", a.q_lora_rank, c.hidden_size);
  attn.bf16("q_norm.weight", {a.q_lora_rank});
  attn.fp8("wq_b", a.query_size(), a.q_lora_rank);
  attn.fp8("wkv", a.head_dim, c.hidden_size);
  attn.bf16("kv_norm.weight", {a.head_dim});
  attn.fp8("wo_a", a.output_size(), a.group_input_size());
  attn.fp8("wo_b", c.hidden_size, a.output_size());
  attn.f32("attn_sink", {a.num_attention_heads});
}

void add_compressor(const List& compressor, const ModelConfig& c, int64_t ratio) {
  compressor.bf16("wkv.weight", {c.attention.head_dim, c.hidden_size});
  if (ratio > 1) compressor.bf16("wgate.weight", {c.attention.head_dim, c.hidden_size});
  compressor.bf16("norm.weight", {c.attention.head_dim});
}

void add_indexer(const List& indexer, const ModelConfig& c, bool owns_keys) {
  const IndexerConfig& x = c.indexer;
  indexer.fp8("wq_b", x.query_size(), c.attention.q_lora_rank);
  indexer.bf16("weights_proj.weight", {x.index_n_heads, c.hidden_size});
  if (!owns_keys) return;
  indexer.bf16("wk.weight", {x.index_head_dim, c.attention.head_dim});
  indexer.bf16("k_norm.weight", {x.index_head_dim});
}

void add_hyper_connection(const List& layer, const ModelConfig& c, const std::string& name) {
  layer.f32(name + "_fn", {c.hc.mix_size(), c.hc.hc_mult * c.hidden_size});
  layer.f32(name + "_base", {c.hc.mix_size()});
  layer.f32(name + "_scale", {3});
}

void add_experts(
    const List& ffn, const ModelConfig& c, int64_t num_experts, TensorKind expert_kind
) {
  const int64_t inner = c.moe.moe_intermediate_size;
  ffn.bf16("gate.weight", {num_experts, c.hidden_size});
  ffn.f32("gate.bias", {num_experts});
  if (c.vision) ffn.f32("gate.bias_vl", {num_experts});
  ffn.fp8("shared_experts.w1", inner, c.hidden_size);
  ffn.fp8("shared_experts.w2", c.hidden_size, inner);
  ffn.fp8("shared_experts.w3", inner, c.hidden_size);
  for (int64_t e = 0; e < num_experts; ++e) {
    const List expert = ffn.at(fmt::format("experts.{}", e), expert_kind);
    expert.fp4("w1", inner, c.hidden_size);
    expert.fp4("w2", c.hidden_size, inner);
    expert.fp4("w3", inner, c.hidden_size);
  }
}

/// What a backbone layer and a draft stage have in common.
void add_block(
    const List& layer, const ModelConfig& c, int64_t num_experts, TensorKind expert_kind
) {
  layer.bf16("attn_norm.weight", {c.hidden_size});
  layer.bf16("ffn_norm.weight", {c.hidden_size});
  add_hyper_connection(layer, c, "hc_attn");
  add_hyper_connection(layer, c, "hc_ffn");
  add_attention(layer.at("attn"), c);
  add_experts(layer.at("ffn"), c, num_experts, expert_kind);
}

void add_engram(const List& engram, const ModelConfig& c, int64_t table) {
  const EngramConfig& e = c.engram;
  engram.fp8_table(
      "embed", e.engram_num_embeddings[static_cast<std::size_t>(table)], e.engram_head_dim
  );
  engram.fp8("wkv", (c.hc.hc_mult + 1) * c.hidden_size, e.lookup_size());
  engram.bf16("q_weight", {c.hc.hc_mult, c.hidden_size});
  engram.bf16("k_weight", {c.hc.hc_mult, c.hidden_size});
}

void add_layer(const List& layer, const ModelConfig& c, const LayerRole& role) {
  if (role.engram >= 0) add_engram(layer.at("engram", TensorKind::kEngram), c, role.engram);
  add_block(layer, c, c.moe.n_routed_experts, TensorKind::kExperts);
  if (role.is_kv_source) add_compressor(layer.at("attn.compressor"), c, role.ratio);
  if (role.is_index_source) add_indexer(layer.at("attn.indexer"), c, role.is_kv_source);
}

void add_drafts(const List& root, const ModelConfig& c) {
  const DraftConfig& d = c.draft;
  for (int64_t s = 0; s < d.num_nextn_predict_layers; ++s) {
    const List stage = root.at(fmt::format("mtp.{}", s), TensorKind::kDraft);
    if (s == 0) {
      stage.fp8("main_proj", c.hidden_size, d.num_targets() * c.hidden_size);
      stage.bf16("main_norm.weight", {c.hidden_size});
    }
    add_block(stage, c, d.dspark_n_routed_experts, TensorKind::kDraft);
    if (s + 1 < d.num_nextn_predict_layers) continue;
    stage.bf16("norm.weight", {c.hidden_size});
    stage.bf16("markov_head.embed.weight", {c.vocab_size, d.dspark_markov_rank});
    stage.bf16("markov_head.head.weight", {c.vocab_size, d.dspark_markov_rank});
    stage.bf16("confidence_head.proj.weight", {1, c.hidden_size + d.dspark_markov_rank});
  }
}

void add_vision(const List& root, const VisionConfig& v, int64_t hidden_size) {
  const int64_t d = v.hidden_size;
  const List vision = root.at("vision", TensorKind::kVision);
  vision.bf16("patch_embed.proj.weight", {d, v.patch_values()});
  vision.bf16("patch_embed.proj.bias", {d});
  for (int64_t b = 0; b < v.num_hidden_layers; ++b) {
    const List block = vision.at(fmt::format("blocks.{}", b));
    block.bf16("norm1.weight", {d});
    block.bf16("attn.wqkv.weight", {3 * d, d});
    block.bf16("attn.wqkv.bias", {3 * d});
    block.bf16("attn.wo.weight", {d, d});
    block.bf16("attn.wo.bias", {d});
    block.bf16("norm2.weight", {d});
    block.bf16("mlp.w1.weight", {2 * v.intermediate_size, d});
    block.bf16("mlp.w2.weight", {d, v.intermediate_size});
  }
  vision.bf16("norm.weight", {d});
  const List aligner = root.at("aligner", TensorKind::kVision);
  aligner.bf16("w1.weight", {hidden_size, v.merged_size()});
  aligner.bf16("w1.bias", {hidden_size});
  aligner.bf16("w2.weight", {hidden_size, hidden_size});
  aligner.bf16("w2.bias", {hidden_size});
}

}  // namespace

std::vector<ExpectedTensor> expected_tensors(const ModelConfig& c) {
  std::vector<ExpectedTensor> tensors;
  const List root(tensors);
  if (c.vision) {
    add_vision(root, *c.vision, c.hidden_size);
    root.bf16("image_start", {c.hidden_size});
    root.bf16("image_newline", {c.hidden_size});
    root.bf16("image_end", {c.hidden_size});
  }
  root.bf16("embed.weight", {c.vocab_size, c.hidden_size});
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
    add_layer(root.at(fmt::format("layers.{}", l), TensorKind::kDense), c, layer_role(c, l));
  }
  root.bf16("norm.weight", {c.hidden_size});
  root.bf16("head.weight", {c.vocab_size, c.hidden_size});
  add_drafts(root, c);
  return tensors;
}

int64_t ExpectedTensor::bytes() const {
  int64_t product = size_of(dtype);
  for (const int64_t size : shape)
    product *= size;
  return product;
}

std::string_view name_of(TensorKind kind) {
  static constexpr std::string_view kNames[] = {
      "embedding", "dense", "experts", "engram", "draft", "vision"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace di::checkpoint
