// What each backbone layer does, worked out from the lists of config.json: whether it compresses,
// whose compressed entries it reads, whose selection it follows, and on which side of the
// encoder/decoder border it lies.
#pragma once

#include <cstdint>
#include <vector>

#include "config/model_config.h"

namespace di {

/// The part one backbone layer plays. Layer ids are -1 where there is none.
struct LayerRole {
  int64_t ratio = 0;             ///< tokens a compressed entry; 0: the layer sees its window only
  int64_t kv_source = -1;        ///< the layer whose compressed entries and index keys it reads
  int64_t index_source = -1;     ///< the layer whose selection it follows
  int64_t engram = -1;           ///< the position of its table in engram_layer_ids
  int64_t draft_target = -1;     ///< the position of its input among the drafter's inputs
  bool is_kv_source = false;     ///< owns a compressor and index keys
  bool is_index_source = false;  ///< owns an index query
  bool is_candidate_source = false;  ///< its selection also yields the candidate blocks
  bool uses_candidates = false;      ///< an index source that searches candidate blocks only
  bool in_decoder = false;           ///< at or above the first layer of ratio 1
};

/// The role of backbone layer `layer`, 0 ≤ layer < num_hidden_layers.
LayerRole layer_role(const ModelConfig& config, int64_t layer);

/// The roles of all backbone layers in order.
std::vector<LayerRole> layer_roles(const ModelConfig& config);

/// The first layer of ratio 1: the encoder ends before it. num_hidden_layers when no layer has
/// ratio 1, so that everything is encoder.
int64_t first_decoder_layer(const ModelConfig& config);

}  // namespace di
