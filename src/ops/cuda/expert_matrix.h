// Where the matrices of a layer's experts lie: kernels find one from the first and its number.
#pragma once

#include <cstdint>

#include "ops/moe.h"

namespace di::ops::cuda {

/// The packed matrices of one kind, of all routed experts at a constant distance, and of the shared
/// expert.
struct ExpertMatrix {
  const uint8_t* routed;
  int64_t stride;  ///< bytes from one expert to the next
  const uint8_t* shared;
};

/// Matrix `which`, called `name`, of all experts of `op`, each [rows, cols] and packed in FP4 or
/// FP8. Throws Error{kUnsupported} when they differ, or lie at other distances.
ExpertMatrix expert_matrix(
    const Experts& op, Weight ExpertWeights::*which, const char* name, int64_t rows, int64_t cols
);

}  // namespace di::ops::cuda
