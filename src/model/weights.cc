#include "model/weights.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/math.h"
#include "checkpoint/loader.h"
#include "config/layer_role.h"
#include "tensor/address_memory.h"

namespace di::model {
namespace {

using checkpoint::Checkpoint;
using checkpoint::TensorView;
using ops::Weight;
using ops::WeightFormat;

constexpr int64_t kAlignment = 256;

/// Collects what must be copied or packed while tensors are bound, then does it in one go.
class Binder {
 public:
  Binder(const Checkpoint& checkpoint, const ops::OpTable& table, const LoadOptions& options)
      : checkpoint_(checkpoint), table_(table), options_(options) {}

  /// A matrix called `name`.weight, with `name`.scale when the format has scales.
  void matrix(Weight& target, const std::string& name, WeightFormat format) {
    const TensorView codes = checkpoint_.find(name + ".weight");
    Weight raw{format, codes.shape[0], codes.shape[1], codes.bytes.data(), nullptr};
    if (format == WeightFormat::kFp4) raw.cols *= 2;
    if (format == WeightFormat::kFp4 || format == WeightFormat::kFp8) {
      const TensorView scales = checkpoint_.find(name + ".scale");
      raw.scales = reinterpret_cast<const uint8_t*>(scales.bytes.data());
    }
    bind(target, raw);
  }

  /// A bare fp32 matrix, such as hc_attn_fn.
  void f32_matrix(Weight& target, const std::string& name) {
    const TensorView tensor = checkpoint_.find(name);
    bind(
        target, {WeightFormat::kF32, tensor.shape[0], tensor.shape[1], tensor.bytes.data(), nullptr}
    );
  }

  template <class T, int Rank>
  void vector(View<const T, Rank>& target, const std::string& name) {
    const TensorView tensor = checkpoint_.find(name);
    for (int d = 0; d < Rank; ++d)
      target.dims[d] = tensor.shape[static_cast<std::size_t>(d)];
    bind(target.data, tensor.bytes, sizeof(T));
  }

  void engram_table(ops::EngramTable& target, const std::string& name) {
    const TensorView codes = checkpoint_.find(name + ".weight");
    const TensorView scales = checkpoint_.find(name + ".scale");
    target.num_rows = codes.shape[0];
    target.head_dim = codes.shape[1];
    bind_table(target.codes, codes.bytes);
    bind_table(target.scales, scales.bytes);
  }

  int64_t storage_bytes() const { return total_; }

  /// Points every target into `storage`.
  void point_into(const std::byte* storage) const {
    for (const Copy& copy : copies_)
      copy.point_to(storage + copy.offset);
    for (const Packing& packing : packings_) {
      *packing.target = packing.raw;
      packing.target->data = storage + packing.offset;
      packing.target->scales = nullptr;
    }
  }

  /// Lets a device read what stays in the mapped file; the pages stay pinned as long as the result.
  std::vector<std::shared_ptr<const std::byte>> pin_in_place() const {
    std::vector<std::shared_ptr<const std::byte>> pinned;
    for (const std::span<const std::byte> range : merged_pages()) {
      pinned.push_back(table_.pin(range));
      for (const InPlace& part : in_place_) {
        const std::ptrdiff_t offset = part.source.data() - range.data();
        if (offset >= 0 && offset < std::ssize(range)) part.point_to(pinned.back().get() + offset);
      }
    }
    return pinned;
  }

  /// Fills `storage`.
  void fill(std::byte* storage, ThreadPool& pool, const checkpoint::LoadProgress& progress) const {
    std::vector<checkpoint::LoadJob> jobs;
    for (const Copy& copy : copies_)
      jobs.push_back(copy_job(copy.source, storage + copy.offset));
    for (const Packing& packing : packings_)
      jobs.push_back(pack_job(packing.raw, storage + packing.offset));
    table_.begin_loading();
    try {
      checkpoint::run_load_jobs(std::move(jobs), pool, progress);
    } catch (...) {
      table_.end_loading();
      throw;
    }
    table_.end_loading();
  }

 private:
  /// Bytes that ops cannot read where the mapping holds them, and who reads them from their new
  /// place.
  struct Copy {
    std::function<void(const std::byte*)> point_to;
    std::span<const std::byte> source;
    int64_t offset;
  };
  /// Bytes that ops read where the mapping holds them, once their pages are pinned.
  struct InPlace {
    std::function<void(const std::byte*)> point_to;
    std::span<const std::byte> source;
  };
  struct Packing {
    Weight* target;
    Weight raw;
    int64_t offset;
  };
  /// Whether ops can read values of `unit` bytes where the mapping holds them.
  bool is_readable(const void* pointer, std::size_t unit) const {
    return table_.memory().is_host() && reinterpret_cast<std::uintptr_t>(pointer) % unit == 0;
  }

  /// The ranges of in_place_ in ascending order, those that share a page as one.
  std::vector<std::span<const std::byte>> merged_pages() const {
    constexpr std::uintptr_t kPage = 4096;
    std::vector<std::span<const std::byte>> ranges;
    for (const InPlace& part : in_place_)
      ranges.push_back(part.source);
    std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) {
      return std::less<>()(a.data(), b.data());
    });
    std::vector<std::span<const std::byte>> merged;
    const auto page_of = [](const std::byte* p) {
      return reinterpret_cast<std::uintptr_t>(p) / kPage;
    };
    for (const auto& range : ranges) {
      if (!merged.empty()) {
        std::span<const std::byte>& last = merged.back();
        if (page_of(range.data()) <= page_of(last.data() + last.size() - 1)) {
          last = {last.data(), range.data() + range.size()};
          continue;
        }
      }
      merged.push_back(range);
    }
    return merged;
  }

  int64_t take(int64_t bytes) {
    const int64_t offset = total_;
    total_ = align_up(total_ + bytes, kAlignment);
    return offset;
  }

  void bind(Weight& target, const Weight& raw) {
    target = raw;
    const int64_t bytes = table_.packed_bytes(raw.format, raw.rows, raw.cols);
    if (bytes > 0) {
      packings_.push_back({&target, raw, take(bytes)});
    } else {
      const auto size = static_cast<std::size_t>(ops::data_bytes(raw.format, raw.rows, raw.cols));
      bind(target.data, {raw.data, size}, element_bytes(raw.format));
    }
  }

  /// Points `target` at `bytes`, or at the copy of them that will be made.
  template <class T>
  void bind(const T*& target, std::span<const std::byte> bytes, std::size_t unit) {
    target = reinterpret_cast<const T*>(bytes.data());
    if (is_readable(bytes.data(), unit)) return;
    copies_.push_back(
        {[&target](const std::byte* data) { target = reinterpret_cast<const T*>(data); },
         bytes,
         take(static_cast<int64_t>(bytes.size()))}
    );
  }

  void bind_table(const uint8_t*& target, std::span<const std::byte> bytes) {
    if (!options_.engram_on_host || table_.memory().is_host()) return bind(target, bytes, 1);
    in_place_.push_back(
        {[&target](const std::byte* data) { target = reinterpret_cast<const uint8_t*>(data); },
         bytes}
    );
  }

  static std::size_t element_bytes(WeightFormat format) {
    return static_cast<std::size_t>(std::max<int64_t>(1, ops::data_bytes(format, 1, 1)));
  }

  checkpoint::LoadJob copy_job(std::span<const std::byte> source, std::byte* to) const {
    checkpoint::LoadJob job;
    job.sources.push_back(source);
    job.num_units = std::max<int64_t>(1, std::ssize(source));
    job.convert = [from = source.data(), to, load = table_.load](int64_t begin, int64_t end) {
      load(from + begin, end - begin, to + begin);
    };
    return job;
  }

  checkpoint::LoadJob pack_job(const Weight& raw, std::byte* packed) const {
    const auto span = [](const void* data, int64_t bytes) {
      return std::span(static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes));
    };
    checkpoint::LoadJob job;
    job.sources.push_back(span(raw.data, ops::data_bytes(raw.format, raw.rows, raw.cols)));
    if (raw.scales != nullptr) {
      job.sources.push_back(span(raw.scales, ops::scale_bytes(raw.format, raw.rows, raw.cols)));
    }
    job.num_units = ceil_div(raw.rows, ops::kPackRows);
    job.convert = [raw, packed, pack = table_.pack](int64_t begin, int64_t end) {
      pack(raw, {begin * ops::kPackRows, std::min(raw.rows, end * ops::kPackRows)}, packed);
    };
    return job;
  }

  const Checkpoint& checkpoint_;
  const ops::OpTable& table_;
  const LoadOptions options_;
  std::vector<InPlace> in_place_;
  std::vector<Copy> copies_;
  std::vector<Packing> packings_;
  int64_t total_ = 0;
};

void bind_site(Binder& binder, SiteWeights& site, const std::string& name) {
  binder.f32_matrix(site.fn, name + "_fn");
  binder.vector(site.base, name + "_base");
  binder.vector(site.scale, name + "_scale");
}

void bind_attention(Binder& binder, AttentionWeights& attn, const std::string& prefix) {
  binder.matrix(attn.wq_a, prefix + "wq_a", WeightFormat::kFp8);
  binder.matrix(attn.wq_b, prefix + "wq_b", WeightFormat::kFp8);
  binder.matrix(attn.wkv, prefix + "wkv", WeightFormat::kFp8);
  binder.matrix(attn.wo_a, prefix + "wo_a", WeightFormat::kFp8);
  binder.matrix(attn.wo_b, prefix + "wo_b", WeightFormat::kFp8);
  binder.vector(attn.q_norm, prefix + "q_norm.weight");
  binder.vector(attn.kv_norm, prefix + "kv_norm.weight");
  binder.vector(attn.attn_sink, prefix + "attn_sink");
}

void bind_compressor(
    Binder& binder, CompressorWeights& part, const std::string& prefix, int64_t ratio
) {
  binder.matrix(part.wkv, prefix + "compressor.wkv", WeightFormat::kBf16);
  if (ratio > 1) binder.matrix(part.wgate, prefix + "compressor.wgate", WeightFormat::kBf16);
  binder.vector(part.norm, prefix + "compressor.norm.weight");
  binder.matrix(part.wk, prefix + "indexer.wk", WeightFormat::kBf16);
  binder.vector(part.k_norm, prefix + "indexer.k_norm.weight");
}

void bind_expert(
    Binder& binder, ops::ExpertWeights& expert, const std::string& prefix, WeightFormat format
) {
  binder.matrix(expert.w1, prefix + ".w1", format);
  binder.matrix(expert.w3, prefix + ".w3", format);
  binder.matrix(expert.w2, prefix + ".w2", format);
}

void bind_moe(
    Binder& binder,
    MoeWeights& moe,
    const std::string& prefix,
    const ModelConfig& config,
    int64_t num_experts
) {
  binder.matrix(moe.gate, prefix + "gate", WeightFormat::kBf16);
  binder.vector(moe.bias, prefix + "gate.bias");
  if (config.vision) binder.vector(moe.bias_vl, prefix + "gate.bias_vl");
  moe.experts.resize(static_cast<std::size_t>(num_experts));
  for (std::size_t e = 0; e < moe.experts.size(); ++e) {
    bind_expert(binder, moe.experts[e], fmt::format("{}experts.{}", prefix, e), WeightFormat::kFp4);
  }
  bind_expert(binder, moe.shared_experts, prefix + "shared_experts", WeightFormat::kFp8);
}

void bind_engram(Binder& binder, EngramWeights& engram, const std::string& prefix) {
  binder.engram_table(engram.table, prefix + "embed");
  binder.matrix(engram.wkv, prefix + "wkv", WeightFormat::kFp8);
  binder.vector(engram.q_weight, prefix + "q_weight");
  binder.vector(engram.k_weight, prefix + "k_weight");
}

/// What a backbone layer and a draft stage have in common.
void bind_block(
    Binder& binder,
    LayerWeights& layer,
    const std::string& prefix,
    const ModelConfig& config,
    int64_t num_experts
) {
  bind_site(binder, layer.hc_attn, prefix + "hc_attn");
  binder.vector(layer.attn_norm, prefix + "attn_norm.weight");
  bind_attention(binder, layer.attn, prefix + "attn.");
  bind_site(binder, layer.hc_ffn, prefix + "hc_ffn");
  binder.vector(layer.ffn_norm, prefix + "ffn_norm.weight");
  bind_moe(binder, layer.ffn, prefix + "ffn.", config, num_experts);
}

void bind_layer(Binder& binder, LayerWeights& layer, const ModelConfig& config, int64_t l) {
  const LayerRole role = layer_role(config, l);
  const std::string prefix = fmt::format("layers.{}.", l);
  if (role.engram >= 0) bind_engram(binder, layer.engram.emplace(), prefix + "engram.");
  bind_block(binder, layer, prefix, config, config.moe.n_routed_experts);
  if (role.is_kv_source) {
    bind_compressor(binder, layer.compressor.emplace(), prefix + "attn.", role.ratio);
  }
  if (role.is_index_source) {
    IndexerWeights& indexer = layer.indexer.emplace();
    binder.matrix(indexer.wq_b, prefix + "attn.indexer.wq_b", WeightFormat::kFp8);
    binder.matrix(indexer.weights_proj, prefix + "attn.indexer.weights_proj", WeightFormat::kBf16);
  }
}

void bind_drafts(Binder& binder, DraftWeights& draft, const ModelConfig& config) {
  binder.matrix(draft.main_proj, "mtp.0.main_proj", WeightFormat::kFp8);
  binder.vector(draft.main_norm, "mtp.0.main_norm.weight");
  const int64_t stages = config.draft.num_nextn_predict_layers;
  draft.stages.resize(static_cast<std::size_t>(stages));
  for (int64_t s = 0; s < stages; ++s) {
    LayerWeights& stage = draft.stages[static_cast<std::size_t>(s)];
    const std::string prefix = fmt::format("mtp.{}.", s);
    bind_block(binder, stage, prefix, config, config.draft.dspark_n_routed_experts);
  }
  const std::string last = fmt::format("mtp.{}.", stages - 1);
  binder.vector(draft.norm, last + "norm.weight");
  binder.vector(draft.markov_embed, last + "markov_head.embed.weight");
  binder.matrix(draft.markov_head, last + "markov_head.head", WeightFormat::kBf16);
  binder.matrix(draft.confidence, last + "confidence_head.proj", WeightFormat::kBf16);
}

void bind_model(
    Binder& binder, Weights& weights, const ModelConfig& config, const LoadOptions& options
) {
  binder.vector(weights.embed, "embed.weight");
  weights.layers.resize(static_cast<std::size_t>(config.num_hidden_layers));
  for (int64_t l = 0; l < config.num_hidden_layers; ++l) {
    bind_layer(binder, weights.layers[static_cast<std::size_t>(l)], config, l);
  }
  binder.vector(weights.norm, "norm.weight");
  binder.matrix(weights.head, "head", WeightFormat::kBf16);
  if (options.drafts && config.draft.enabled()) {
    bind_drafts(binder, weights.draft.emplace(), config);
  }
}

}  // namespace

int64_t weight_storage_bytes(
    const Checkpoint& checkpoint, const ops::OpTable& ops, const LoadOptions& options
) {
  Binder binder(checkpoint, ops, options);
  Weights weights;
  bind_model(binder, weights, checkpoint.config(), options);
  return binder.storage_bytes();
}

Weights outline_weights(
    const Checkpoint& checkpoint, const ops::OpTable& ops, const LoadOptions& options
) {
  Binder binder(checkpoint, ops, options);
  Weights weights;
  bind_model(binder, weights, checkpoint.config(), options);
  weights.storage_bytes = binder.storage_bytes();
  weights.storage = address_memory().allocate(weights.storage_bytes, "the weights");
  binder.point_into(weights.storage.get());
  return weights;
}

Weights load_weights(
    const Checkpoint& checkpoint,
    const ops::OpTable& ops,
    ThreadPool& pool,
    const checkpoint::LoadProgress& progress,
    const LoadOptions& options
) {
  Binder binder(checkpoint, ops, options);
  Weights weights;
  bind_model(binder, weights, checkpoint.config(), options);
  weights.storage_bytes = binder.storage_bytes();
  weights.storage = ops.memory().allocate(weights.storage_bytes, "the weights");
  binder.point_into(weights.storage.get());
  weights.pinned = binder.pin_in_place();
  binder.fill(weights.storage.get(), pool, progress);
  return weights;
}

}  // namespace di::model
