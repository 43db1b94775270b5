#include "verify/cache_record.h"

#include <algorithm>

#include <fmt/format.h>

namespace di::verify {
namespace {

struct Target {
  const std::string& prefix;
  int64_t backbone;  // layers
  Record& record;

  Recorded& tensor(int64_t layer, const char* name) {
    const bool is_draft = layer >= backbone;
    const int64_t index = is_draft ? layer - backbone : layer;
    return record[fmt::format("{}.{}{}.{}", prefix, is_draft ? "D" : "L", index, name)];
  }

  /// Appends bytes to an integer tensor of rows.
  void append(int64_t layer, const char* name, const uint8_t* bytes, int64_t count) {
    Recorded& rows = tensor(layer, name);
    rows.is_integer = true;
    rows.integers.insert(rows.integers.end(), bytes, bytes + count);
    if (rows.shape.empty()) rows.shape = {0, count};
    ++rows.shape[0];
  }
  void append_floats(int64_t layer, const char* name, const float* values, int64_t count) {
    Recorded& row = tensor(layer, name);
    row.floats.insert(row.floats.end(), values, values + count);
    row.shape = {1, count};
  }
};

/// Window records in slot order, slot = position mod window.
void record_window(
    const model::Model& model,
    const ops::RingView& ring,
    int64_t slot,
    int64_t tokens,
    int64_t layer,
    Target& target
) {
  const int64_t window = model.config.attention.sliding_window;
  const int64_t dim = model.config.attention.head_dim;
  const int64_t count = std::min(tokens, window);
  for (int64_t at = 0; at < count; ++at) {
    const int64_t position = at + (tokens - 1 - at) / window * window;  // newest one in this slot
    const auto* bytes = reinterpret_cast<const uint8_t*>(ring.at(slot, position));
    target.append(layer, "win_codes", bytes, dim);
    target.append(layer, "win_scales", bytes + dim, dim / 32);
  }
}

void record_entries(
    const model::Model& model,
    const cache::KvCache& cache,
    const cache::SequenceState& state,
    int64_t tokens,
    int64_t layer,
    Target& target
) {
  const ops::PagedView kv = cache.compressed(layer);
  const ops::PagedView keys = cache.index_keys(layer);
  const int64_t dim = model.config.attention.head_dim;
  const bool fp4 = cache.layout().kv_format == ops::KvFormat::kFp4;
  const int64_t code_bytes = fp4 ? dim / 2 : dim;
  const int64_t key_scales = model.config.indexer.index_head_dim / 32;
  const int64_t ratio = model.roles[static_cast<std::size_t>(layer)].ratio;
  for (int64_t j = 0; j < tokens / ratio; ++j) {
    const auto* record = reinterpret_cast<const uint8_t*>(kv.record(state.block_table().data(), j));
    target.append(layer, "ckv_codes", record, code_bytes);
    target.append(layer, "ckv_scales", record + code_bytes, kv.record_bytes - code_bytes);
    const auto* section =
        reinterpret_cast<const uint8_t*>(keys.section(state.block_table().data(), j));
    const int64_t at = j % keys.entries_per_block;
    const uint8_t* scales = section + keys.entries_per_block * keys.record_bytes;
    target.append(layer, "ik_codes", section + at * keys.record_bytes, keys.record_bytes);
    target.append(layer, "ik_scales", scales + at * key_scales, key_scales);
  }
  if (tokens % ratio != 0) {
    const auto* carried =
        reinterpret_cast<const float*>(cache.carry(layer).at(state.slot(), tokens - 1));
    target.append_floats(layer, "carry_kv", carried, dim);
    target.append_floats(layer, "carry_score", carried + dim, dim);
  }
}

}  // namespace

void record_caches(
    const std::string& prefix,
    const model::Model& model,
    const cache::KvCache& cache,
    const model::Session& session,
    Record& record
) {
  Target target{prefix, model.config.num_hidden_layers, record};
  const int64_t tokens = std::ssize(session.tokens());
  for (int64_t l = 0; l < model.config.num_layers(); ++l) {
    record_window(model, cache.ring(l), session.state().slot(), tokens, l, target);
    if (model.roles[static_cast<std::size_t>(l)].is_kv_source) {
      record_entries(model, cache, session.state(), tokens, l, target);
    }
  }
}

}  // namespace di::verify
