// Long sums over a row in the order of the reference: interleaved_sum of ops/canonical.h.
#pragma once

#include "ops/cuda/number_formats.cuh"

namespace di::ops::cuda::canonical {

/// Σ term(i) in double. The whole warp calls it; each lane of its halves holds one of the 16
/// partial sums, and all get the result.
template <class Term>
__device__ double interleaved_sum(int64_t count, const Term& term) {
  double sum = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x % 16; i < count; i += 16)
    sum += term(i);
#pragma unroll
  for (int half = 8; half > 0; half /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, half);
  return sum;
}

/// Squares rounded to fp32, summed in double.
__device__ inline double sum_of_squares(const bf16* x, int64_t width) {
  return interleaved_sum(width, [x](int64_t i) {
    const float value = to_float(x[i]);
    return value * value;
  });
}

}  // namespace di::ops::cuda::canonical
