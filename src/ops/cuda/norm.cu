// Q8, RMS norm and rotary positions; see norm.h. They are bound by memory, or by the launch.
#include <algorithm>

#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/norm.h"
#include "ops/cuda/norm_row.cuh"
#include "ops/cuda/rope.cuh"
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

/// Block x takes a row, block y a share of its heads.
template <class Piece>
__global__ void __launch_bounds__(kThreads) rope_kernel(RopeArgs args) {
  extern __shared__ float2 rotations[];
  join_kernel_chain();
  const int share = static_cast<int>(blockIdx.y);
  rotate_share<Piece>(args, blockIdx.x, share, static_cast<int>(gridDim.y), rotations);
}

template <class Piece>
void launch_rope(Exec& exec, const Rope& op) {
  const RopeArgs args = rope_args(op);
  const int pieces = args.heads * args.pairs / static_cast<int>(sizeof(Piece) / 4);
  const int threads = std::min(kThreads, (std::max(pieces, args.pairs) + 31) / 32 * 32);
  launch_overlapped(
      "rope",
      rope_kernel<Piece>,
      dim3(static_cast<unsigned int>(args.rows), shares_of_row(args, pieces, threads)),
      threads,
      rotation_bytes(args),
      exec.stream,
      args
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
  if (op.x.size() == 0 || op.frequencies.dim(0) == 0) return;
  rotates_vectors(op) ? launch_rope<uint4>(exec, op) : launch_rope<uint32_t>(exec, op);
}

}  // namespace di::ops::cuda
