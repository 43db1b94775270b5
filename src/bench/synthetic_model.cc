#include "bench/synthetic_model.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "bench/synthetic.h"
#include "config/known_models.h"

namespace di::bench {
namespace {

using ops::Weight;
using ops::WeightFormat;

/// Layers that the release's drafter looks back on.
constexpr int64_t kDraftTargets = 3;

/// Rows of embedding and head that have values of their own; the vocabulary without a head.
constexpr int64_t kDistinctTokens = 1024;

/// The release's drafter, which looks back on the first layers, so that later ones can be left out.
DraftConfig draft_of(const ModelConfig& release, const SyntheticOptions& options) {
  if (!options.with_drafts) return {};
  DI_CHECK(options.with_head, "drafts are of the head's vocabulary");
  DraftConfig draft = release.draft;
  draft.dspark_target_layer_ids.resize(
      static_cast<std::size_t>(std::min(kDraftTargets, options.num_layers))
  );
  std::iota(draft.dspark_target_layer_ids.begin(), draft.dspark_target_layer_ids.end(), 0);
  if (options.num_experts > 0)
    draft.dspark_n_routed_experts = std::min(draft.dspark_n_routed_experts, options.num_experts);
  return draft;
}

/// Layers of ratio 2, and stages of none.
void set_layers(ModelConfig& config, int64_t num_layers) {
  config.num_hidden_layers = num_layers;
  config.attention.compress_ratios.assign(static_cast<std::size_t>(num_layers), 2);
  config.attention.compress_ratios.resize(static_cast<std::size_t>(config.num_layers()), 0);
}

ModelConfig config_of(const std::string& shape, const SyntheticOptions& options) {
  if (shape != "v4.1-flash") {
    throw Error(
        ErrorCode::kInvalidArgument, fmt::format("unknown shape \"{}\"; there is v4.1-flash", shape)
    );
  }
  ModelConfig config = v41_flash_config();
  config.draft = draft_of(config, options);
  set_layers(config, options.num_layers);
  if (!options.with_head) config.vocab_size = kDistinctTokens;
  if (options.num_experts > 0)
    config.moe.n_routed_experts = std::min(config.moe.n_routed_experts, options.num_experts);
  config.attention.kv_source_layer_ids = {0};
  config.indexer.index_source_layer_ids = {0};
  config.indexer.candidate_source_layer_id.reset();
  config.engram = {};
  config.vision.reset();
  return config;
}

void set_roles(model::Model& model) {
  model.roles = layer_roles(model.config);
  model.roles.resize(static_cast<std::size_t>(model.config.num_layers()));
}

class Builder {
 public:
  Builder(const ops::OpTable& ops, ThreadPool& pool, SyntheticModel& result)
      : ops_(ops), pool_(pool), result_(result) {}

  Weight matrix(WeightFormat format, int64_t rows, int64_t cols) {
    SyntheticWeight own;
    const SyntheticWeight& raw = values_of(format, rows, cols, own);
    const int64_t bytes = packed_bytes(raw.view());
    std::byte* memory = take(bytes);
    pack(raw.view(), memory);
    dense_bytes_ += bytes;
    dense_weights_ += rows * cols;
    return packed(raw.view(), memory);
  }

  /// `count` experts with the values of one, each in its own memory.
  std::vector<ops::ExpertWeights> experts(int64_t count, int64_t inner, int64_t hidden) {
    std::vector<ops::ExpertWeights> experts(static_cast<std::size_t>(count));
    result_.expert_bytes = 0;
    for (const auto part :
         {&ops::ExpertWeights::w1, &ops::ExpertWeights::w3, &ops::ExpertWeights::w2}) {
      const bool down = part == &ops::ExpertWeights::w2;
      SyntheticWeight own;
      const SyntheticWeight& raw =
          values_of(WeightFormat::kFp4, down ? hidden : inner, down ? inner : hidden, own);
      const int64_t bytes = packed_bytes(raw.view());
      std::byte* memory = take(bytes * count);
      pack(raw.view(), memory);
      pool_.parallel_for(count - 1, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          write(memory + (i + 1) * bytes, memory, bytes);
      });
      for (int64_t e = 0; e < count; ++e) {
        experts[static_cast<std::size_t>(e)].*part = packed(raw.view(), memory + e * bytes);
      }
      result_.expert_bytes += bytes;
    }
    result_.expert_weights = 3 * inner * hidden;
    return experts;
  }

  View<const bf16, 1> norm(int64_t width) {
    const std::vector<bf16> ones(static_cast<std::size_t>(width), to_bf16(1.0f));
    return View<const bf16, 1>(keep(ones), width);
  }

  View<const float, 1> constants(int64_t width, float value) {
    const std::vector<float> values(static_cast<std::size_t>(width), value);
    return View<const float, 1>(keep(values), width);
  }

  View<const bf16, 2> embedding(int64_t rows, int64_t cols) {
    return View<const bf16, 2>(keep(repeated_rows(rows, cols)), rows, cols);
  }

  /// Every token's row of the head; those of kDistinctTokens tokens over and over.
  Weight head(int64_t rows, int64_t cols) {
    const std::vector<bf16> values = repeated_rows(rows, cols);
    const auto* data = reinterpret_cast<const std::byte*>(values.data());
    const Weight raw{WeightFormat::kBf16, rows, cols, data, nullptr};
    std::byte* memory = take(packed_bytes(raw));
    pack(raw, memory);
    return packed(raw, memory);
  }

  /// The next matrices are another layer's or stage's.
  void begin_block() { used_.clear(); }

  int64_t dense_bytes() const { return dense_bytes_; }
  int64_t dense_weights() const { return dense_weights_; }

 private:
  using Shape = std::tuple<WeightFormat, int64_t, int64_t>;

  /// Values of a matrix: when it is quantised, which takes long, those of its counterpart in the
  /// block before, else new ones in `own`. Within a block all differ: equal gate and up projections
  /// would give all rows the same direction, and so the same experts.
  const SyntheticWeight& values_of(
      WeightFormat format, int64_t rows, int64_t cols, SyntheticWeight& own
  ) {
    if (format != WeightFormat::kFp8 && format != WeightFormat::kFp4)
      return own = synthetic_weight(random_, format, rows, cols);
    const Shape shape{format, rows, cols};
    std::deque<SyntheticWeight>& known = quantised_[shape];
    const auto index = used_[shape]++;
    if (index == known.size()) known.push_back(synthetic_weight(random_, format, rows, cols));
    return known[index];
  }

  std::vector<bf16> repeated_rows(int64_t rows, int64_t cols) {
    std::vector<bf16> values = synthetic_activations(random_, kDistinctTokens * cols);
    values.resize(static_cast<std::size_t>(rows * cols));
    for (int64_t row = kDistinctTokens; row < rows; ++row) {
      const auto from = values.begin() + row % kDistinctTokens * cols;
      std::copy(from, from + cols, values.begin() + row * cols);
    }
    return values;
  }

  /// A copy of `values` that lives as long as the model.
  template <class T>
  const T* keep(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    std::byte* memory = take(bytes);
    write(memory, values.data(), bytes);
    return reinterpret_cast<const T*>(memory);
  }

  void write(std::byte* to, const void* from, int64_t bytes) const {
    ops_.memory().copy(to, from, bytes, nullptr);
    ops_.memory().wait(nullptr);
  }

  int64_t packed_bytes(const Weight& raw) const {
    const int64_t bytes = ops_.packed_bytes(raw.format, raw.rows, raw.cols);
    const int64_t plain = ops::data_bytes(raw.format, raw.rows, raw.cols) +
                          ops::scale_bytes(raw.format, raw.rows, raw.cols);
    return align_up(bytes > 0 ? bytes : plain, 256);
  }

  bool packs(const Weight& raw) const {
    return ops_.packed_bytes(raw.format, raw.rows, raw.cols) > 0;
  }

  void pack(const Weight& raw, std::byte* memory) {
    if (!packs(raw)) {
      const int64_t data = ops::data_bytes(raw.format, raw.rows, raw.cols);
      write(memory, raw.data, data);
      const int64_t scales = ops::scale_bytes(raw.format, raw.rows, raw.cols);
      if (scales > 0) write(memory + data, raw.scales, scales);
      return;
    }
    pool_.parallel_for(ceil_div(raw.rows, ops::kPackRows), 1, [&](int64_t begin, int64_t end) {
      ops_.pack(raw, {begin * ops::kPackRows, std::min(raw.rows, end * ops::kPackRows)}, memory);
    });
  }

  Weight packed(const Weight& raw, const std::byte* memory) const {
    Weight weight = raw;
    weight.data = memory;
    const auto* scales =
        reinterpret_cast<const uint8_t*>(memory) + ops::data_bytes(raw.format, raw.rows, raw.cols);
    weight.scales = packs(raw) || raw.scales == nullptr ? nullptr : scales;
    return weight;
  }

  std::byte* take(int64_t bytes) {
    return result_.storage.emplace_back(ops_.memory().allocate(bytes, "synthetic weights")).get();
  }

  const ops::OpTable& ops_;
  ThreadPool& pool_;
  SyntheticModel& result_;
  std::mt19937 random_{1};
  std::map<Shape, std::deque<SyntheticWeight>> quantised_;
  std::map<Shape, std::size_t> used_;  // by the block that is built
  int64_t dense_bytes_ = 0;
  int64_t dense_weights_ = 0;
};

model::SiteWeights site(Builder& builder, const ModelConfig& config) {
  const int64_t mixes = config.hc.mix_size();
  return {
      builder.matrix(WeightFormat::kF32, mixes, config.hc.hc_mult * config.hidden_size),
      builder.constants(mixes, 0.0f),
      builder.constants(3, 1.0f)};
}

model::AttentionWeights attention(Builder& builder, const ModelConfig& config) {
  const AttentionConfig& a = config.attention;
  model::AttentionWeights weights;
  weights.wq_a = builder.matrix(WeightFormat::kFp8, a.q_lora_rank, config.hidden_size);
  weights.wq_b = builder.matrix(WeightFormat::kFp8, a.query_size(), a.q_lora_rank);
  weights.wkv = builder.matrix(WeightFormat::kFp8, a.head_dim, config.hidden_size);
  weights.wo_a = builder.matrix(WeightFormat::kFp8, a.output_size(), a.group_input_size());
  weights.wo_b = builder.matrix(WeightFormat::kFp8, config.hidden_size, a.output_size());
  weights.q_norm = builder.norm(a.q_lora_rank);
  weights.kv_norm = builder.norm(a.head_dim);
  weights.attn_sink = builder.constants(a.num_attention_heads, 0.0f);
  return weights;
}

model::CompressorWeights compressor(Builder& builder, const ModelConfig& config) {
  const int64_t dim = config.attention.head_dim;
  model::CompressorWeights weights;
  weights.wkv = builder.matrix(WeightFormat::kBf16, dim, config.hidden_size);
  weights.wgate = builder.matrix(WeightFormat::kBf16, dim, config.hidden_size);
  weights.norm = builder.norm(dim);
  weights.wk = builder.matrix(WeightFormat::kBf16, config.indexer.index_head_dim, dim);
  weights.k_norm = builder.norm(config.indexer.index_head_dim);
  return weights;
}

model::IndexerWeights indexer(Builder& builder, const ModelConfig& config) {
  return {
      builder.matrix(WeightFormat::kFp8, config.indexer.query_size(), config.attention.q_lora_rank),
      builder.matrix(WeightFormat::kBf16, config.indexer.index_n_heads, config.hidden_size)};
}

model::MoeWeights moe(Builder& builder, const ModelConfig& config, int64_t num_experts) {
  const int64_t inner = config.moe.moe_intermediate_size;
  const int64_t hidden = config.hidden_size;
  model::MoeWeights weights;
  weights.gate = builder.matrix(WeightFormat::kBf16, num_experts, hidden);
  weights.bias = builder.constants(num_experts, 0.0f);
  weights.experts = builder.experts(num_experts, inner, hidden);
  weights.shared_experts.w1 = builder.matrix(WeightFormat::kFp8, inner, hidden);
  weights.shared_experts.w3 = builder.matrix(WeightFormat::kFp8, inner, hidden);
  weights.shared_experts.w2 = builder.matrix(WeightFormat::kFp8, hidden, inner);
  return weights;
}

/// What a backbone layer and a draft stage have in common.
model::LayerWeights block(Builder& builder, const ModelConfig& config, int64_t num_experts) {
  builder.begin_block();
  model::LayerWeights layer;
  layer.hc_attn = site(builder, config);
  layer.attn_norm = builder.norm(config.hidden_size);
  layer.attn = attention(builder, config);
  layer.hc_ffn = site(builder, config);
  layer.ffn_norm = builder.norm(config.hidden_size);
  layer.ffn = moe(builder, config, num_experts);
  return layer;
}

model::DraftWeights drafter(Builder& builder, const ModelConfig& config) {
  const DraftConfig& draft = config.draft;
  const int64_t hidden = config.hidden_size;
  model::DraftWeights weights;
  weights.main_proj = builder.matrix(WeightFormat::kFp8, hidden, draft.num_targets() * hidden);
  weights.main_norm = builder.norm(hidden);
  for (int64_t stage = 0; stage < draft.num_nextn_predict_layers; ++stage)
    weights.stages.push_back(block(builder, config, draft.dspark_n_routed_experts));
  weights.norm = builder.norm(hidden);
  weights.markov_embed = builder.embedding(config.vocab_size, draft.dspark_markov_rank);
  weights.markov_head = builder.head(config.vocab_size, draft.dspark_markov_rank);
  weights.confidence = builder.matrix(WeightFormat::kBf16, 1, hidden + draft.dspark_markov_rank);
  return weights;
}

}  // namespace

SyntheticModel synthetic_model(
    const std::string& shape,
    const ops::OpTable& ops,
    ThreadPool& pool,
    const SyntheticOptions& options
) {
  SyntheticModel result;
  const ModelConfig config = config_of(shape, options);
  model::Model& model = result.model;
  model.config = config;
  set_roles(model);
  model::keep_constants(model, {}, ops.memory());

  Builder builder(ops, pool, result);
  for (int64_t l = 0; l < config.num_hidden_layers; ++l) {
    const LayerRole& role = model.roles[static_cast<std::size_t>(l)];
    model::LayerWeights& layer =
        model.weights.layers.emplace_back(block(builder, config, config.moe.n_routed_experts));
    if (role.is_kv_source) layer.compressor = compressor(builder, config);
    if (role.is_index_source) layer.indexer = indexer(builder, config);
  }
  result.dense_bytes_per_layer = builder.dense_bytes() / config.num_hidden_layers;
  result.dense_weights_per_layer = builder.dense_weights() / config.num_hidden_layers;
  model.weights.embed = builder.embedding(config.vocab_size, config.hidden_size);
  model.weights.norm = builder.norm(config.hidden_size);
  if (options.with_head) {
    model.weights.head = builder.head(config.vocab_size, config.hidden_size);
  } else {
    model.weights.head.rows = config.vocab_size;
  }
  if (config.draft.enabled()) model.weights.draft = drafter(builder, config);
  return result;
}

void shorten(SyntheticModel& model, int64_t num_layers) {
  ModelConfig& config = model.model.config;
  DI_CHECK(
      config.draft.num_targets() <= num_layers && num_layers <= config.num_hidden_layers,
      "the drafter's layers stay"
  );
  set_layers(config, num_layers);
  set_roles(model.model);
  model.model.weights.layers.resize(static_cast<std::size_t>(num_layers));
}

}  // namespace di::bench
