// Cases of the compressor: from tokens to packed entries and index keys, and the carry it leaves.
#include <fmt/format.h>

#include "cache/layout.h"
#include "model/rope_tables.h"
#include "verify/op_case.h"

namespace di::verify {
namespace {

using cache::kBlockTokens;
using ops::WeightFormat;

constexpr float kNormEps = 1e-20f;
constexpr int64_t kRopeDim = 64;
constexpr int64_t kCarryLength = 7;

/// The compressor's steps on the tokens of the file, for one ratio.
class CompressorCase {
 public:
  CompressorCase(OpCase& test, int64_t ratio)
      : test_(test),
        prefix_(fmt::format("r{}.", ratio)),
        ratio_(ratio),
        tokens_(test.dim("x", 0)),
        entries_(tokens_ / ratio),
        dim_(test.dim("wkv", 0)),
        x_(test.fixture().bf16s("x")),
        record_bytes_(ops::kv_record_bytes(ops::KvFormat::kFp4, dim_)),
        cache_(entries_, kBlockTokens / ratio, record_bytes_, record_bytes_),
        keys_(PagedEntries::index_keys(entries_, ratio, test.dim("wk", 0))),
        step_(tokens_, ratio, cache_.num_blocks()) {}

  void run() {
    std::vector<bf16> latent = ratio_ == 1 ? project(x_, "wkv") : pool();
    norm(latent, "norm");
    test_.check(prefix_ + "latent", latent);
    std::vector<bf16> key = project(latent, "wk");
    norm(key, "k_norm");
    test_.check(prefix_ + "index_key_pre_rope", key);
    store_key(key);
    store_latent(latent);
  }

 private:
  View<const bf16, 2> view(const std::vector<bf16>& x, int64_t width) const {
    return View<const bf16, 2>(x.data(), std::ssize(x) / width, width);
  }

  std::vector<bf16> project(const std::vector<bf16>& x, const std::string& weight) {
    const ops::Weight w = test_.weight(WeightFormat::kBf16, weight);
    const View<const bf16, 2> in = view(x, w.cols);
    std::vector<bf16> y(static_cast<std::size_t>(in.dim(0) * w.rows));
    test_.ops().linear(
        test_.exec(),
        {.y = View<bf16, 2>(y.data(), in.dim(0), w.rows), .y_f32 = {}, .x = in, .w = w}
    );
    return y;
  }

  std::vector<float> project_f32(const std::string& weight) {
    const ops::Weight w = test_.weight(WeightFormat::kBf16, weight);
    std::vector<float> y(static_cast<std::size_t>(tokens_ * w.rows));
    test_.ops().linear(
        test_.exec(),
        {.y = {}, .y_f32 = View<float, 2>(y.data(), tokens_, w.rows), .x = view(x_, w.cols), .w = w}
    );
    return y;
  }

  std::vector<bf16> pool() {
    const std::vector<float> kv = project_f32("wkv"), score = project_f32("wgate");
    const View<const float, 2> kv_view(kv.data(), tokens_, dim_);
    const View<const float, 2> score_view(score.data(), tokens_, dim_);
    std::vector<float> ring(static_cast<std::size_t>(kCarryLength * 2 * dim_));
    const int64_t row_bytes = 2 * dim_ * static_cast<int64_t>(sizeof(float));
    const ops::CarryView carry{
        reinterpret_cast<std::byte*>(ring.data()),
        kCarryLength * row_bytes,
        kCarryLength,
        row_bytes};
    std::vector<bf16> latent(static_cast<std::size_t>(entries_ * dim_));
    test_.ops().compressor_pool(
        test_.exec(),
        {.latent = View<bf16, 2>(latent.data(), entries_, dim_),
         .kv = kv_view,
         .score = score_view,
         .carry = carry,
         .ratio = ratio_,
         .entries = step_.entries(),
         .rows = step_.rows()}
    );
    test_.ops().carry_store(
        test_.exec(), {.carry = carry, .kv = kv_view, .score = score_view, .rows = step_.rows()}
    );
    if (tokens_ % ratio_ != 0) {
      const auto* row = reinterpret_cast<const float*>(carry.at(/*slot=*/0, tokens_ - 1));
      const auto width = static_cast<std::size_t>(dim_);
      test_.check(prefix_ + "carry_kv", std::span(row, width));
      test_.check(prefix_ + "carry_score", std::span(row + width, width));
    }
    return latent;
  }

  void norm(std::vector<bf16>& x, const std::string& weight_name) {
    const std::vector<bf16> weight = test_.fixture().bf16s(weight_name);
    const int64_t width = std::ssize(weight);
    test_.ops().rms_norm(
        test_.exec(),
        {.y = View<bf16, 2>(x.data(), std::ssize(x) / width, width),
         .x = view(x, width),
         .weight = View<const bf16, 1>(weight.data(), width),
         .eps = kNormEps}
    );
  }

  /// An entry stands at the position of its first token.
  void rotate(std::vector<bf16>& x) {
    const std::vector<float> frequencies = model::yarn_frequencies(
        160000,
        kRopeDim,
        {.factor = 16, .beta_fast = 32, .beta_slow = 1, .original_max_position_embeddings = 65536}
    );
    std::vector<int64_t> positions;
    for (int64_t j = 0; j < entries_; ++j)
      positions.push_back(j * ratio_);
    test_.ops().rope(
        test_.exec(),
        {.x = View<bf16, 3>(x.data(), entries_, 1, std::ssize(x) / entries_),
         .positions = View<const int64_t, 1>(positions.data(), entries_),
         .frequencies = View<const float, 1>(frequencies.data(), std::ssize(frequencies))}
    );
  }

  void store_key(std::vector<bf16>& key) {
    rotate(key);
    const int64_t dim = test_.dim("wk", 0);
    test_.ops().index_key_store(
        test_.exec(),
        {.cache = keys_.view(),
         .k = view(key, dim),
         .entries = step_.entries(),
         .rows = step_.rows()}
    );
    const ops::PagedView& keys = keys_.view();
    std::vector<uint8_t> codes, scales;
    for (int64_t j = 0; j < entries_; ++j) {
      const auto* section = reinterpret_cast<const uint8_t*>(keys.section(step_.block_table(), j));
      const int64_t at = j % keys.entries_per_block;
      const uint8_t* code = section + at * keys.record_bytes;
      const uint8_t* scale = section + keys.entries_per_block * keys.record_bytes + at * (dim / 32);
      codes.insert(codes.end(), code, code + keys.record_bytes);
      scales.insert(scales.end(), scale, scale + dim / 32);
    }
    test_.check(prefix_ + "ik_codes", codes);
    test_.check(prefix_ + "ik_scales", scales);
  }

  void store_latent(std::vector<bf16>& latent) {
    rotate(latent);
    test_.ops().compressed_store(
        test_.exec(),
        {.cache = cache_.view(),
         .format = ops::KvFormat::kFp4,
         .kv = view(latent, dim_),
         .entries = step_.entries(),
         .rows = step_.rows()}
    );
    std::vector<uint8_t> codes, scales;
    for (int64_t j = 0; j < entries_; ++j) {
      const auto* record =
          reinterpret_cast<const uint8_t*>(cache_.view().record(step_.block_table(), j));
      codes.insert(codes.end(), record, record + dim_ / 2);
      scales.insert(scales.end(), record + dim_ / 2, record + record_bytes_);
    }
    test_.check(prefix_ + "ckv_codes", codes);
    test_.check(prefix_ + "ckv_scales", scales);
  }

  OpCase& test_;
  std::string prefix_;
  int64_t ratio_, tokens_, entries_, dim_;
  std::vector<bf16> x_;
  int64_t record_bytes_;
  PagedEntries cache_, keys_;
  LoneSequence step_;
};

}  // namespace

void run_compressor_case(OpCase& test) {
  for (const int64_t ratio : {1, 2})
    CompressorCase(test, ratio).run();
}

}  // namespace di::verify
