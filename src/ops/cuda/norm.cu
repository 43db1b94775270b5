// Q8, RMS norm and rotary positions; see norm.h. They are bound by memory, or by the launch.
#include <algorithm>

#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/norm.h"
#include "ops/cuda/norm_row.cuh"
#include "ops/cuda/scalars.cuh"
#include "ops/cuda/shapes.h"
#include "ops/cuda/vectors.cuh"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 256;

/// Eight columns a thread, so that a group is four lanes of one warp.
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(uint8_t* codes, uint8_t* scales, const bf16* x, int64_t vectors) {
  join_kernel_chain();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  float values[kVector] = {};
  if (i < vectors) unpack(load_vector(x + i * kVector), values);
  const Q8Vector q8 = quantize_q8(values);
  if (i >= vectors) return;
  *reinterpret_cast<uint2*>(codes + i * kVector) = q8.codes;
  if (i % 4 == 0) scales[i / 4] = q8.scale;
}

/// kRowThreads threads share a row.
template <int kRowThreads, int kKept>
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(NormArrays arrays) {
  __shared__ double scratch[kThreads / 32];
  const int row = blockIdx.x * (kThreads / kRowThreads) + threadIdx.x / kRowThreads;
  if (row >= arrays.rows) return;
  NormRow<kRowThreads, kKept> norm(arrays);
  join_kernel_chain();
  norm.run(arrays, row, scratch);
}

template <int kRowThreads, int kKept>
void launch_rms_norm(Exec& exec, const RmsNorm& op) {
  launch_overlapped(
      "rms_norm",
      rms_norm_kernel<kRowThreads, kKept>,
      blocks_of(op.x.dim(0), kThreads / kRowThreads),
      kThreads,
      0,
      exec.stream,
      norm_arrays(op)
  );
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

/// Block x takes a row, block y a share of its heads: its angles first, while its first pieces are
/// on their way. A piece is one pair of channels, or four where they are aligned.
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
  join_kernel_chain();
  const int64_t row = blockIdx.x;
  constexpr int kPairs = sizeof(Piece) / 4;
  const int pieces = pairs / kPairs;
  bf16* start = x + row * heads * head_dim + head_dim - 2 * pairs;
  const auto place_of = [&](int i) {
    return reinterpret_cast<Piece*>(start + i / pieces * head_dim + i % pieces * kPairs * 2);
  };
  int i = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  const bool has_piece = i < heads * pieces;
  Piece piece{};
  if (has_piece) piece = *place_of(i);
  for (int pair = threadIdx.x; pair < pairs; pair += blockDim.x)
    rotations[pair] = rotation(positions[row], frequencies[pair], inverse);
  __syncthreads();
  if (!has_piece) return;
  *place_of(i) = rotate(piece, rotations + i % pieces * kPairs);
  for (i += gridDim.y * blockDim.x; i < heads * pieces; i += gridDim.y * blockDim.x)
    *place_of(i) = rotate(*place_of(i), rotations + i % pieces * kPairs);
}

template <class Piece>
void launch_rope(Exec& exec, const Rope& op) {
  const auto pairs = static_cast<int>(op.frequencies.dim(0));
  const auto heads = static_cast<int>(op.x.dim(1));
  const int pieces = heads * pairs / static_cast<int>(sizeof(Piece) / 4);
  const int threads = std::min(kThreads, (std::max(pieces, pairs) + 31) / 32 * 32);
  constexpr unsigned int kFewRows = 64;  // that leave processors to spare
  const auto rows = static_cast<unsigned int>(op.x.dim(0));
  launch_overlapped(
      "rope",
      rope_kernel<Piece>,
      dim3(rows, rows <= kFewRows ? blocks_of(pieces, threads) : 1),
      threads,
      pairs * static_cast<int>(sizeof(float2)),
      exec.stream,
      op.x.data,
      op.positions.data,
      op.frequencies.data,
      heads,
      static_cast<int>(op.x.dim(2)),
      pairs,
      op.inverse
  );
}

}  // namespace

void quantize_fp8(Exec& exec, const QuantizeFp8& op) {
  need_multiple("quantize_fp8: columns", op.x.dim(1), kScaleGroup);
  const int64_t vectors = op.x.size() / kVector;
  if (vectors == 0) return;
  launch_overlapped(
      "quantize_fp8",
      quantize_kernel,
      blocks_of(vectors, kThreads),
      kThreads,
      0,
      exec.stream,
      op.codes.data,
      op.scales.data,
      op.x.data,
      vectors
  );
}

void rms_norm(Exec& exec, const RmsNorm& op) {
  need_multiple("rms_norm: width", op.x.dim(1), op.codes.empty() ? kVector : kScaleGroup);
  if (op.x.size() == 0) return;
  const int64_t width = op.x.dim(1);
  if (width <= NormRow<32, 2>::kMaxWidth) {
    launch_rms_norm<32, 2>(exec, op);
  } else if (width <= NormRow<32, 5>::kMaxWidth) {
    launch_rms_norm<32, 5>(exec, op);
  } else if (width <= NormRow<kThreads, 3>::kMaxWidth) {
    launch_rms_norm<kThreads, 3>(exec, op);
  } else {
    need_at_most("rms_norm: width", width, NormRow<kThreads, 8>::kMaxWidth);
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
