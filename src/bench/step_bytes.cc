#include "bench/step_bytes.h"

#include <cmath>

#include "cache/layout.h"

namespace di::bench {

double StepBytes::expected_experts(double rows) const {
  if (experts == 0) return 0;
  const double missed = 1 - static_cast<double>(experts_per_token) / static_cast<double>(experts);
  return static_cast<double>(experts) * (1 - std::pow(missed, rows));
}

double StepBytes::of_step(double rows, double experts_used) const {
  return dense + static_cast<double>(layers) * experts_used * expert + rows * cache;
}

double StepBytes::permitted_gain(double rows, double experts_used) const {
  return rows * of_step(1, static_cast<double>(experts_per_token)) / of_step(rows, experts_used);
}

StepBytes step_bytes(
    const ModelConfig& config, double weight_bytes, double expert_bytes, double tokens
) {
  const cache::Layout layout = cache::make_layout(config);
  StepBytes bytes{
      .dense = 0,
      .expert = expert_bytes,
      .cache = static_cast<double>(layout.slot_bytes) + tokens * layout.bytes_per_token(),
      .layers = config.num_hidden_layers,
      .experts = config.moe.n_routed_experts,
      .experts_per_token = config.moe.num_experts_per_tok};
  bytes.dense = weight_bytes - static_cast<double>(bytes.layers * bytes.experts) * expert_bytes;
  return bytes;
}

}  // namespace di::bench
