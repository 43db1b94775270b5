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

/// What is built.
struct SyntheticOptions {
  int64_t num_layers = 2;
  bool with_head = false;  ///< the release's vocabulary with embedding and head (2.6 GB more), else
                           ///< a small vocabulary and no head
  bool with_drafts = false;  ///< the release's drafter, too (8 GB more); needs the head. It looks
                             ///< back on three layers, or as many as there are
  int64_t num_experts = 0;   ///< routed experts of a layer at most; 0: the release's
};

/// A KV and index source of ratio 2 and layers that reuse both, of the shape called `shape`
/// ("v4.1-flash"). No Engram, no vision part. Takes about 7.5 GB a layer. Experts of a layer,
/// quantised matrices of different layers, and the rows of embedding and heads beyond the first
/// ones hold equal values, each in memory of its own. Throws Error{kInvalidArgument} for an unknown
/// shape.
SyntheticModel synthetic_model(
    const std::string& shape,
    const ops::OpTable& ops,
    ThreadPool& pool,
    const SyntheticOptions& options = {}
);

/// Leaves the first `num_layers` layers, at least as many as the drafter looks back on. The others
/// keep their memory.
void shorten(SyntheticModel& model, int64_t num_layers);

}  // namespace di::bench
