// Mixture of experts: router and experts. Source: specification section 4.7.
#pragma once

#include <span>

#include "ops/linear.h"

namespace di::ops {

/// score = √softplus(logit); the k best by score + bias (ties to the lower id), or `fixed_ids`;
/// weight = score / (Σ selected scores + 1e-20) · route_scale.
struct Route {
  View<int32_t, 2> ids;              // [rows, k], ascending
  View<float, 2> weights;            // [rows, k], in the order of ids
  View<const float, 2> logits;       // [rows, experts]
  View<const float, 1> bias;         // [experts]: selection bias of text rows
  View<const float, 1> bias_vl;      // [experts]: of image rows
  View<const uint8_t, 1> is_image;   // [rows], or empty: no image rows
  View<const int32_t, 2> fixed_ids;  // [rows, k]: ids chosen by token hash, or empty: by score
  float route_scale = 1;
};

/// The three matrices of one expert.
struct ExpertWeights {
  Weight w1;  ///< gate [inner, hidden]
  Weight w3;  ///< up   [inner, hidden]
  Weight w2;  ///< down [hidden, inner]
};

/// u = silu(min(gate, limit)) · clamp(up, ±limit), times the routing weight when there is one.
struct SwiGlu {
  View<bf16, 2> u;               // [rows, inner]
  View<const bf16, 2> gate;      // [rows, inner]
  View<const bf16, 2> up;        // [rows, inner]
  View<const float, 1> weights;  // [rows], or empty: shared expert
  float limit = 0;
};

/// y = Σ over a row's experts in ascending id of w2(swiglu(w1 x, w3 x) · weight), each rounded to
/// bf16, plus the shared expert, summed in fp32 and rounded to bf16.
struct Experts {
  View<bf16, 2> y;               // [rows, hidden]
  Q8View x;                      // [rows, hidden]
  View<const int32_t, 2> ids;    // [rows, k] ascending
  View<const float, 2> weights;  // [rows, k]
  std::span<const ExpertWeights> experts;
  ExpertWeights shared;
  float swiglu_limit = 0;
};

}  // namespace di::ops
