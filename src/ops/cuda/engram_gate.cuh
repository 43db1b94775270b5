// What the gate's kernels of both arithmetics share: their operands, and γ from its sums.
#pragma once

#include "ops/cuda/scalars.cuh"
#include "ops/engram.h"

namespace di::ops::cuda {

struct GateArgs {
  bf16* h;
  const bf16* kv;
  const bf16* q_weight;
  const bf16* k_weight;
  const uint8_t* is_image;  ///< or nullptr
  float* gate;              ///< or nullptr
  int64_t width;
};

inline GateArgs gate_args_of(const EngramGate& op) {
  return {
      .h = op.h.data,
      .kv = op.kv.data,
      .q_weight = op.q_weight.data,
      .k_weight = op.k_weight.data,
      .is_image = op.is_image.empty() ? nullptr : op.is_image.data,
      .gate = op.gate.empty() ? nullptr : op.gate.data,
      .width = op.h.dim(2)};
}

/// γ of a stream from Σ h · (q · k) · key, Σ h² and Σ key².
__device__ inline float engram_gate_of(
    double dot, double h_squares, double key_squares, int64_t width
) {
  constexpr float kEps = 1e-20f;
  constexpr float kSmallestGate = 1e-6f;
  const auto root = static_cast<float>(1.0 / sqrt(static_cast<double>(width)));
  const float h = inverse_rms_of_sum(h_squares, width, kEps);
  const float key = inverse_rms_of_sum(key_squares, width, kEps);
  const float g = static_cast<float>(dot) * (h * key) * root;
  return sigmoid_f32(copysignf(sqrt_f32(fmaxf(fabsf(g), kSmallestGate)), g));
}

}  // namespace di::ops::cuda
