// A model of the release's width with few layers and synthetic weights in memory.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"

namespace di::bench {

/// Owns what the model's weights point to.
struct SyntheticModel {
  model::Model model;
  std::vector<std::shared_ptr<std::byte>> storage;
  int64_t dense_bytes_per_layer = 0;  ///< packed bytes that every row of a layer reads, on average
  int64_t expert_bytes = 0;           ///< packed bytes of one routed expert
  int64_t dense_weights_per_layer = 0;  ///< weights that every row multiplies with, on average
  int64_t expert_weights = 0;
};

/// A KV and index source of ratio 2 and layers that reuse both, of the shape called `shape`
/// ("v4.1-flash"). No Engram, no drafts, no vision part. Takes about 7.5 GB a layer; experts hold
/// equal values in memory of their own. `with_head`: the release's vocabulary with embedding and
/// head (2.6 GB more, rows of equal values in memory of their own), else a small vocabulary and no
/// head. Throws Error{kInvalidArgument} for an unknown shape.
SyntheticModel synthetic_model(
    const std::string& shape,
    const ops::OpTable& ops,
    ThreadPool& pool,
    int64_t num_layers = 2,
    bool with_head = false
);

}  // namespace di::bench
