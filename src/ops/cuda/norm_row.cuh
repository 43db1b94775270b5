// One row of an RMS norm, in the registers of a warp or a block.
#pragma once

#include "ops/cuda/scalars.cuh"
#include "ops/cuda/vectors.cuh"
#include "ops/norm.h"
#include "ops/weight.h"

namespace di::ops::cuda {

/// Of RmsNorm; `codes` is nullptr when nobody wants Q8.
struct NormArrays {
  bf16* y;
  const bf16* x;
  const bf16* weight;
  uint8_t* codes;
  uint8_t* scales;
  int rows;
  int width;
  float eps;
};

inline NormArrays norm_arrays(const RmsNorm& op) {
  return {
      .y = op.y.data,
      .x = op.x.data,
      .weight = op.weight.data,
      .codes = op.codes.data,
      .scales = op.scales.data,
      .rows = static_cast<int>(op.x.dim(0)),
      .width = static_cast<int>(op.x.dim(1)),
      .eps = op.eps};
}

/// kRowThreads threads share a row and keep it in registers, kKept vectors each at most.
template <int kRowThreads, int kKept>
class NormRow {
 public:
  static constexpr int64_t kMaxWidth = int64_t{kRowThreads} * kKept * kVector;

  /// Reads the weights, which no kernel writes.
  __device__ explicit NormRow(const NormArrays& arrays) {
#pragma unroll
    for (int v = 0; v < kKept; ++v) {
      const int d = channel(v);
      weight_[v] = d < arrays.width ? load_vector(arrays.weight + d) : uint4{};
    }
  }

  /// `scratch`: that of sum_over_row.
  __device__ void run(const NormArrays& arrays, int row, double* scratch) {
    const int64_t offset = static_cast<int64_t>(row) * arrays.width;
    uint4 kept[kKept];
#pragma unroll
    for (int v = 0; v < kKept; ++v) {
      const int d = channel(v);
      kept[v] = d < arrays.width ? load_vector(arrays.x + offset + d) : uint4{};
    }
    double sum[1] = {};
    float values[kVector];
#pragma unroll
    for (int v = 0; v < kKept; ++v) {
      unpack(kept[v], values);
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        sum[0] += values[i] * values[i];
    }
    sum_over_row<kRowThreads>(sum, scratch);
    const float factor = inverse_rms_of_sum(sum[0], arrays.width, arrays.eps);
#pragma unroll
    for (int v = 0; v < kKept; ++v) {
      const int d = channel(v);
      const bool inside = d < arrays.width;
      float weights[kVector];
      unpack(kept[v], values);
      unpack(weight_[v], weights);
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        values[i] = weights[i] * (values[i] * factor);
      const uint4 rounded = pack(values);
      if (inside) store_vector(arrays.y + offset + d, rounded);
      if (arrays.codes == nullptr) continue;
      unpack(rounded, values);
      const Q8Vector q8 = quantize_q8(values);
      if (!inside) continue;
      *reinterpret_cast<uint2*>(arrays.codes + offset + d) = q8.codes;
      if (d % kScaleGroup == 0) arrays.scales[(offset + d) / kScaleGroup] = q8.scale;
    }
  }

 private:
  static __device__ int channel(int v) {
    return (static_cast<int>(threadIdx.x) % kRowThreads + v * kRowThreads) * kVector;
  }

  uint4 weight_[kKept];
};

}  // namespace di::ops::cuda
