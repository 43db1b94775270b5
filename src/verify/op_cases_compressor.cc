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
        x_(test.place(test.fixture().bf16s("x"), tokens_, test.dim("x", 1))),
        record_bytes_(ops::kv_record_bytes(ops::KvFormat::kFp4, dim_)),
        cache_(test, entries_, kBlockTokens / ratio, record_bytes_, record_bytes_),
        keys_(PagedEntries::index_keys(test, entries_, ratio, test.dim("wk", 0))),
        step_(test, tokens_, ratio, cache_.num_blocks()) {}

  void run() {
    const View<bf16, 2> latent = ratio_ == 1 ? project(x_, "wkv") : pool();
    norm(latent, "norm");
    test_.check(prefix_ + "latent", latent);
    const View<bf16, 2> key = project(latent, "wk");
    norm(key, "k_norm");
    test_.check(prefix_ + "index_key_pre_rope", key);
    store_key(key);
    store_latent(latent);
  }

 private:
  View<bf16, 2> project(const View<bf16, 2>& x, const std::string& weight) {
    const ops::Weight w = test_.weight(WeightFormat::kBf16, weight);
    const auto y = test_.room<bf16>(x.dim(0), w.rows);
    test_.ops().linear(test_.exec(), {.y = y, .y_f32 = {}, .x = x, .w = w});
    return y;
  }

  View<float, 2> project_f32(const std::string& weight) {
    const ops::Weight w = test_.weight(WeightFormat::kBf16, weight);
    const auto y = test_.room<float>(tokens_, w.rows);
    test_.ops().linear(test_.exec(), {.y = {}, .y_f32 = y, .x = x_, .w = w});
    return y;
  }

  View<bf16, 2> pool() {
    const View<float, 2> kv = project_f32("wkv"), score = project_f32("wgate");
    const auto ring = test_.room<float>(kCarryLength, 2 * dim_);
    const int64_t row_bytes = 2 * dim_ * static_cast<int64_t>(sizeof(float));
    const ops::CarryView carry{
        reinterpret_cast<std::byte*>(ring.data), kCarryLength * row_bytes, kCarryLength, row_bytes};
    const auto latent = test_.room<bf16>(entries_, dim_);
    test_.ops().compressor_pool(
        test_.exec(),
        {.latent = latent,
         .kv = kv,
         .score = score,
         .carry = carry,
         .ratio = ratio_,
         .entries = step_.entries(),
         .rows = step_.rows()}
    );
    test_.ops().carry_store(
        test_.exec(), {.carry = carry, .kv = kv, .score = score, .rows = step_.rows()}
    );
    if (tokens_ % ratio_ != 0) {
      float* row = ring.row((tokens_ - 1) % kCarryLength);
      test_.check(prefix_ + "carry_kv", View<float, 1>(row, dim_));
      test_.check(prefix_ + "carry_score", View<float, 1>(row + dim_, dim_));
    }
    return latent;
  }

  void norm(const View<bf16, 2>& x, const std::string& weight) {
    test_.ops().rms_norm(
        test_.exec(),
        {.y = x, .x = x, .weight = test_.place(test_.fixture().bf16s(weight)), .eps = kNormEps}
    );
  }

  /// An entry stands at the position of its first token.
  void rotate(const View<bf16, 2>& x) {
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
        {.x = View<bf16, 3>(x.data, entries_, 1, x.dim(1)),
         .positions = test_.place(positions),
         .frequencies = test_.place(frequencies)}
    );
  }

  void store_key(const View<bf16, 2>& key) {
    rotate(key);
    const int64_t dim = key.dim(1);
    test_.ops().index_key_store(
        test_.exec(),
        {.cache = keys_.view(), .k = key, .entries = step_.entries(), .rows = step_.rows()}
    );
    const ops::PagedView keys = keys_.fetch(test_);
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

  void store_latent(const View<bf16, 2>& latent) {
    rotate(latent);
    test_.ops().compressed_store(
        test_.exec(),
        {.cache = cache_.view(),
         .format = ops::KvFormat::kFp4,
         .kv = latent,
         .entries = step_.entries(),
         .rows = step_.rows()}
    );
    const ops::PagedView cache = cache_.fetch(test_);
    std::vector<uint8_t> codes, scales;
    for (int64_t j = 0; j < entries_; ++j) {
      const auto* record = reinterpret_cast<const uint8_t*>(cache.record(step_.block_table(), j));
      codes.insert(codes.end(), record, record + dim_ / 2);
      scales.insert(scales.end(), record + dim_ / 2, record + record_bytes_);
    }
    test_.check(prefix_ + "ckv_codes", codes);
    test_.check(prefix_ + "ckv_scales", scales);
  }

  OpCase& test_;
  std::string prefix_;
  int64_t ratio_, tokens_, entries_, dim_;
  View<bf16, 2> x_;
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
