// StepBytes: the bytes that a decode step must read, and what they alone would let a batch gain.
//
// A step reads every dense weight once whatever its rows, each expert that some row chose once, and
// every row's own cache. So bytes a token fall with the rows, the faster the fewer experts the rows
// choose between them; a machine whose steps wait for memory can gain that much and no more.
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace di::bench {

struct StepBytes {
  double dense = 0;   ///< packed weights that every step reads
  double expert = 0;  ///< packed weights of one routed expert of one layer
  double cache = 0;   ///< of one sequence
  int64_t layers = 0;
  int64_t experts = 0;            ///< routed, of a layer
  int64_t experts_per_token = 0;  ///< that a row chooses

  /// Distinct experts of one layer that `rows` rows choose, when each chooses its k of E at random:
  /// E (1 − (1 − k/E)^rows).
  double expected_experts(double rows) const;

  /// Bytes of a step of `rows` sequences that uses `experts_used` experts in the mean layer.
  double of_step(double rows, double experts_used) const;

  /// Tokens/s of `rows` sequences over those of one, if bytes alone counted.
  double permitted_gain(double rows, double experts_used) const;
};

/// Sizes of a model whose weights take `weight_bytes` in all, experts of `expert_bytes` included,
/// for sequences of `tokens` tokens. A sequence's cache counts whole: its window, and all
/// compressed entries and index keys.
StepBytes step_bytes(
    const ModelConfig& config, double weight_bytes, double expert_bytes, double tokens
);

}  // namespace di::bench
