// Q8, RMS norm and rotary positions; see norm.h. They are bound by memory, or by the launch.
#include <algorithm>

#include "ops/cuda/launch.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/scalars.cuh"
#include "ops/cuda/shapes.h"
#include "ops/cuda/vectors.cuh"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kWarpWidth = 1024;  ///< rows up to this width are one warp's

/// Eight columns a thread, so that a group is four lanes of one warp.
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(uint8_t* codes, uint8_t* scales, const bf16* x, int64_t vectors) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  float values[kVector] = {};
  if (i < vectors) unpack(load_vector(x + i * kVector), values);
  const Q8Vector q8 = quantize_q8(values);
  if (i >= vectors) return;
  *reinterpret_cast<uint2*>(codes + i * kVector) = q8.codes;
  if (i % 4 == 0) scales[i / 4] = q8.scale;
}

/// kRowThreads threads share a row.
template <int kRowThreads>
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(bf16* y, const bf16* x, const bf16* weight, int rows, int width, float eps) {
  __shared__ double scratch[kThreads / 32];
  const int row = blockIdx.x * (kThreads / kRowThreads) + threadIdx.x / kRowThreads;
  if (row >= rows) return;
  const int first = threadIdx.x % kRowThreads * kVector;
  const bf16* from = x + static_cast<int64_t>(row) * width;
  bf16* to = y + static_cast<int64_t>(row) * width;
  double sum[1] = {};
  float values[kVector];
  for (int d = first; d < width; d += kRowThreads * kVector) {
    unpack(load_vector(from + d), values);
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      sum[0] += values[i] * values[i];
  }
  sum_over_row<kRowThreads>(sum, scratch);
  const float factor = inverse_rms_of_sum(sum[0], width, eps);
  float weights[kVector];
  for (int d = first; d < width; d += kRowThreads * kVector) {
    unpack(load_vector(from + d), values);
    unpack(load_vector(weight + d), weights);
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      values[i] = weights[i] * (values[i] * factor);
    store_vector(to + d, pack(values));
  }
}

template <int kRowThreads>
void launch_rms_norm(Exec& exec, const RmsNorm& op) {
  const auto rows = static_cast<int>(op.x.dim(0));
  const auto width = static_cast<int>(op.x.dim(1));
  rms_norm_kernel<kRowThreads>
      <<<blocks_of(rows, kThreads / kRowThreads), kThreads, 0, exec.stream>>>(
          op.y.data, op.x.data, op.weight.data, rows, width, op.eps
      );
  check_launch("rms_norm");
}

/// A block for a row: its angles first, then pairs of channels of all heads.
__global__ void __launch_bounds__(kThreads) rope_kernel(
    bf16* x,
    const int64_t* positions,
    const float* frequencies,
    int heads,
    int head_dim,
    int pairs,
    bool inverse
) {
  extern __shared__ float2 rotations[];
  const int64_t row = blockIdx.x;
  for (int pair = threadIdx.x; pair < pairs; pair += blockDim.x)
    rotations[pair] = rotation(positions[row], frequencies[pair], inverse);
  __syncthreads();
  bf16* first = x + row * heads * head_dim + head_dim - 2 * pairs;
  for (int i = threadIdx.x; i < heads * pairs; i += blockDim.x) {
    const int pair = i % pairs;
    const float2 r = rotations[pair];
    auto* place = reinterpret_cast<uint32_t*>(first + i / pairs * head_dim + 2 * pair);
    const float a = low_float(*place);
    const float b = high_float(*place);
    *place = round_pair(a * r.x - b * r.y, a * r.y + b * r.x);
  }
}

}  // namespace

void quantize_fp8(Exec& exec, const QuantizeFp8& op) {
  need_multiple("quantize_fp8: columns", op.x.dim(1), kScaleGroup);
  const int64_t vectors = op.x.size() / kVector;
  if (vectors == 0) return;
  quantize_kernel<<<blocks_of(vectors, kThreads), kThreads, 0, exec.stream>>>(
      op.codes.data, op.scales.data, op.x.data, vectors
  );
  check_launch("quantize_fp8");
}

void rms_norm(Exec& exec, const RmsNorm& op) {
  need_multiple("rms_norm: width", op.x.dim(1), kVector);
  if (op.x.size() == 0) return;
  if (op.x.dim(1) <= kWarpWidth) {
    launch_rms_norm<32>(exec, op);
  } else {
    launch_rms_norm<kThreads>(exec, op);
  }
}

void rope(Exec& exec, const Rope& op) {
  need_multiple("rope: head_dim", op.x.dim(2), 2);
  const auto pairs = static_cast<int>(op.frequencies.dim(0));
  if (op.x.size() == 0 || pairs == 0) return;
  const auto heads = static_cast<int>(op.x.dim(1));
  const int threads = std::min(kThreads, (heads * pairs + 31) / 32 * 32);
  const auto shared = static_cast<unsigned int>(pairs) * sizeof(float2);
  rope_kernel<<<static_cast<unsigned int>(op.x.dim(0)), threads, shared, exec.stream>>>(
      op.x.data,
      op.positions.data,
      op.frequencies.data,
      heads,
      static_cast<int>(op.x.dim(2)),
      pairs,
      op.inverse
  );
  check_launch("rope");
}

}  // namespace di::ops::cuda
