// The gated activation of one element, in the roundings of docs/numerics.md. Two forms: in double
// for the op that stands alone, in fp32 for the epilogue of the expert GEMMs.
#pragma once

#include "ops/cuda/number_formats.cuh"

namespace di::ops::cuda {

/// min(gate, limit); NaN stays.
__device__ inline float limit_gate(float gate, float limit) {
  return limit < gate ? limit : gate;
}

/// up within ±limit; NaN stays.
__device__ inline float limit_up(float up, float limit) {
  return up < -limit ? -limit : limit < up ? limit : up;
}

/// x · σ(x), evaluated in double and rounded once: what ops/canonical.h states.
__device__ inline float silu_exact(float x) {
  const double wide = x;
  return static_cast<float>(wide / (1.0 + exp(-wide)));
}

/// x · σ(x) within three units in the last place of fp32. The product that it enters is rounded to
/// bf16, which hides the difference from silu_exact in all but one of about 2^14 elements.
__device__ inline float silu_fast(float x) {
  return __fdividef(x, 1.0f + __expf(-x));
}

}  // namespace di::ops::cuda
