#include "config/layer_role.h"

#include <algorithm>

#include "base/check.h"

namespace di {
namespace {

/// The largest id ≤ layer in an ascending list, or -1.
int64_t last_at_or_below(const std::vector<int64_t>& ids, int64_t layer) {
  const auto above = std::upper_bound(ids.begin(), ids.end(), layer);
  return above == ids.begin() ? -1 : *(above - 1);
}

/// Where `layer` stands in an ascending list, or -1.
int64_t position_in(const std::vector<int64_t>& ids, int64_t layer) {
  const auto found = std::lower_bound(ids.begin(), ids.end(), layer);
  return found != ids.end() && *found == layer ? found - ids.begin() : -1;
}

}  // namespace

LayerRole layer_role(const ModelConfig& config, int64_t layer) {
  DI_CHECK(0 <= layer && layer < config.num_hidden_layers, "only backbone layers have a role");
  LayerRole role;
  role.ratio = config.attention.compress_ratios[static_cast<std::size_t>(layer)];
  role.engram = position_in(config.engram.engram_layer_ids, layer);
  role.draft_target = position_in(config.draft.dspark_target_layer_ids, layer);
  role.in_decoder = layer >= first_decoder_layer(config);
  if (role.ratio == 0) return role;

  role.kv_source = last_at_or_below(config.attention.kv_source_layer_ids, layer);
  role.index_source = last_at_or_below(config.indexer.index_source_layer_ids, layer);
  role.is_kv_source = role.kv_source == layer;
  role.is_index_source = role.index_source == layer;
  if (const auto candidates = config.indexer.candidate_source_layer_id) {
    role.is_candidate_source = layer == *candidates;
    role.uses_candidates = role.is_index_source && layer > *candidates;
  }
  return role;
}

std::vector<LayerRole> layer_roles(const ModelConfig& config) {
  std::vector<LayerRole> roles;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    roles.push_back(layer_role(config, layer));
  return roles;
}

int64_t first_decoder_layer(const ModelConfig& config) {
  const auto begin = config.attention.compress_ratios.begin();
  const auto end = begin + config.num_hidden_layers;
  return std::find(begin, end, 1) - begin;
}

}  // namespace di
