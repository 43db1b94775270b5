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

/// Of RmsNorm; `codes` is nullptr when nobody wants Q8.
struct NormArrays {
  bf16* y;
  const bf16* x;
  const bf16* weight;
  uint8_t* codes;
  uint8_t* scales;
};

/// kRowThreads threads share a row and keep it in registers, kKept vectors each at most.
template <int kRowThreads, int kKept>
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(NormArrays arrays, int rows, int width, float eps) {
  __shared__ double scratch[kThreads / 32];
  const int row = blockIdx.x * (kThreads / kRowThreads) + threadIdx.x / kRowThreads;
  if (row >= rows) return;
  const int first = threadIdx.x % kRowThreads * kVector;
  const int64_t offset = static_cast<int64_t>(row) * width;
  uint4 kept[kKept];
#pragma unroll
  for (int v = 0; v < kKept; ++v) {
    const int d = first + v * kRowThreads * kVector;
    kept[v] = d < width ? load_vector(arrays.x + offset + d) : uint4{};
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
  const float factor = inverse_rms_of_sum(sum[0], width, eps);
#pragma unroll
  for (int v = 0; v < kKept; ++v) {
    const int d = first + v * kRowThreads * kVector;
    const bool inside = d < width;
    float weights[kVector] = {};
    unpack(kept[v], values);
    if (inside) unpack(load_vector(arrays.weight + d), weights);
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

/// Launches for rows up to this width, when their kernel is asked to keep so many vectors.
template <int kRowThreads, int kKept>
constexpr int64_t kMaxWidth = int64_t{kRowThreads} * kKept* kVector;

template <int kRowThreads, int kKept>
void launch_rms_norm(Exec& exec, const RmsNorm& op) {
  const auto rows = static_cast<int>(op.x.dim(0));
  const auto width = static_cast<int>(op.x.dim(1));
  rms_norm_kernel<kRowThreads, kKept>
      <<<blocks_of(rows, kThreads / kRowThreads), kThreads, 0, exec.stream>>>(
          {op.y.data, op.x.data, op.weight.data, op.codes.data, op.scales.data}, rows, width, op.eps
      );
  check_launch("rms_norm");
}

__device__ inline uint32_t rotate(uint32_t pair, float2 r) {
  const float a = low_float(pair);
  const float b = high_float(pair);
  return round_pair(a * r.x - b * r.y, a * r.y + b * r.x);
}

__device__ inline uint4 rotate(const uint4& four, const float2* r) {
  return {rotate(four.x, r[0]), rotate(four.y, r[1]), rotate(four.z, r[2]), rotate(four.w, r[3])};
}
__device__ inline uint32_t rotate(uint32_t pair, const float2* r) {
  return rotate(pair, *r);
}

/// A block for a row: its angles first, then pieces of all heads. A piece is one pair of channels,
/// or four where they are aligned.
template <class Piece>
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
  constexpr int kPairs = sizeof(Piece) / 4;
  const int pieces = pairs / kPairs;
  bf16* first = x + row * heads * head_dim + head_dim - 2 * pairs;
#pragma unroll 2
  for (int i = threadIdx.x; i < heads * pieces; i += blockDim.x) {
    const int pair = i % pieces * kPairs;
    auto* place = reinterpret_cast<Piece*>(first + i / pieces * head_dim + 2 * pair);
    *place = rotate(*place, rotations + pair);
  }
}

template <class Piece>
void launch_rope(Exec& exec, const Rope& op) {
  const auto pairs = static_cast<int>(op.frequencies.dim(0));
  const auto heads = static_cast<int>(op.x.dim(1));
  const int pieces = heads * pairs / static_cast<int>(sizeof(Piece) / 4);
  const int threads = std::min(kThreads, (std::max(pieces, pairs) + 31) / 32 * 32);
  const auto shared = static_cast<unsigned int>(pairs) * sizeof(float2);
  rope_kernel<Piece><<<static_cast<unsigned int>(op.x.dim(0)), threads, shared, exec.stream>>>(
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
  need_multiple("rms_norm: width", op.x.dim(1), op.codes.empty() ? kVector : kScaleGroup);
  if (op.x.size() == 0) return;
  const int64_t width = op.x.dim(1);
  if (width <= kMaxWidth<32, 2>) {
    launch_rms_norm<32, 2>(exec, op);
  } else if (width <= kMaxWidth<32, 5>) {
    launch_rms_norm<32, 5>(exec, op);
  } else if (width <= kMaxWidth<kThreads, 3>) {
    launch_rms_norm<kThreads, 3>(exec, op);
  } else {
    need_at_most("rms_norm: width", width, kMaxWidth<kThreads, 8>);
    launch_rms_norm<kThreads, 8>(exec, op);
  }
}

void rope(Exec& exec, const Rope& op) {
  need_multiple("rope: head_dim", op.x.dim(2), 2);
  const int64_t pairs = op.frequencies.dim(0);
  if (op.x.size() == 0 || pairs == 0) return;
  const bool is_aligned = pairs % 4 == 0 && op.x.dim(2) % kVector == 0 &&
                          reinterpret_cast<uintptr_t>(op.x.data) % 16 == 0;
  is_aligned ? launch_rope<uint4>(exec, op) : launch_rope<uint32_t>(exec, op);
}

}  // namespace di::ops::cuda
