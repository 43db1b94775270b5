// Collapse, expand, and the mixes of small models; see mhc.h. The site of a large model is in
// mhc_site.cu.
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/mhc.h"
#include "ops/cuda/mhc_fn.h"
#include "ops/cuda/mhc_rows.cuh"
#include "ops/cuda/mhc_site.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kVectorThreads = 128;  ///< of the kernels that give a thread one vector

void check_shape(const char* op, int64_t streams, int64_t hidden) {
  need_equal((std::string(op) + ": streams").c_str(), streams, kStreams);
  need_multiple((std::string(op) + ": hidden").c_str(), hidden, 32);
}

/// A block for a row, a warp for an output in turn; everything is summed in double.
__global__ void __launch_bounds__(kThreads)
    mix_kernel(MixArgs op, const bf16* h, const float* fn, int64_t width, float norm_eps) {
  __shared__ double sums[kMixes + 1];
  __shared__ float m[kMixes];
  join_kernel_chain();
  const int64_t row = blockIdx.x;
  const bf16* x = h + row * width;
  const int lane = threadIdx.x % 32;
  for (int output = threadIdx.x / 32; output <= kMixes; output += kThreads / 32) {
    double sum = 0;
    for (int64_t k = lane * kVector; k < width; k += 32 * kVector) {
      float values[kVector];
      unpack(load_vector(x + k), values);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        sum += output == kMixes ? static_cast<double>(values[i] * values[i])
                                : static_cast<double>(values[i]) * fn[output * width + k + i];
      }
    }
    sum = sum_over_warp(sum);
    if (lane == 0) sums[output] = sum;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const float factor = inverse_rms_of_sum(sums[kMixes], width, norm_eps);
  if (lane < kMixes) m[lane] = static_cast<float>(sums[lane]) * factor;
  __syncwarp();
  finish_gates(op, m, lane < 16 ? row : -1);
  finish_comb(op, m, lane < 16 ? row : -1);
}

/// A thread for eight channels of a row.
__global__ void __launch_bounds__(kVectorThreads)
    collapse_kernel(bf16* x, const bf16* h, const float* a, int64_t hidden) {
  join_kernel_chain();
  const int64_t row = blockIdx.y;
  const int64_t d = (static_cast<int64_t>(blockIdx.x) * kVectorThreads + threadIdx.x) * kVector;
  if (d >= hidden) return;
  const float4 weights = *reinterpret_cast<const float4*>(a + row * kStreams);
  const float by_stream[kStreams] = {weights.x, weights.y, weights.z, weights.w};
  uint4 streams[kStreams];
#pragma unroll
  for (int c = 0; c < kStreams; ++c)
    streams[c] = load_vector(h + (row * kStreams + c) * hidden + d);
  store_vector(x + row * hidden + d, collapse_vector(streams, by_stream));
}

/// Eight channels of a row and all four streams. `row_comb` [input stream] is the row's.
__device__ void expand_row(const ExpandArgs& op, const float4* row_comb) {
  const int64_t row = blockIdx.y;
  const int64_t d = (static_cast<int64_t>(blockIdx.x) * kVectorThreads + threadIdx.x) * kVector;
  if (d >= op.hidden) return;
  uint4 h[kStreams];
  float4 comb[kStreams];
#pragma unroll
  for (int i = 0; i < kStreams; ++i) {
    h[i] = load_vector(op.h + (row * kStreams + i) * op.hidden + d);
    comb[i] = row_comb[i];
  }
  const float4 post = reinterpret_cast<const float4*>(op.post)[row];
  expand_vectors(h, load_vector(op.y + row * op.hidden + d), comb, post);
#pragma unroll
  for (int j = 0; j < kStreams; ++j)
    store_vector(op.out + (row * kStreams + j) * op.hidden + d, h[j]);
}

__global__ void __launch_bounds__(kVectorThreads) expand_kernel(ExpandArgs op) {
  join_kernel_chain();
  expand_row(op, reinterpret_cast<const float4*>(op.comb) + int64_t{blockIdx.y} * kStreams);
}

/// The Sinkhorn passes of comb while the sublayer still works (MhcExpand), then the expand. What
/// was written so early may not be in this processor's first-level cache in an older form.
__global__ void __launch_bounds__(kVectorThreads)
    finish_and_expand_kernel(ExpandArgs op, int iters, float eps) {
  __shared__ float4 comb[kStreams];
  let_next_kernel_start();
  if (threadIdx.x < 32) {
    const int i = static_cast<int>(threadIdx.x) % 16;
    const float z = sinkhorn(__ldcg(op.comb + int64_t{blockIdx.y} * 16 + i), iters, eps);
    reinterpret_cast<float*>(comb)[i] = z;
  }
  __syncthreads();
  wait_for_previous_kernels();
  expand_row(op, comb);
}

/// Sixteen threads make the passes of a row, as early.
__global__ void __launch_bounds__(kVectorThreads)
    sinkhorn_kernel(float* to, const float* comb, int64_t count, int iters, float eps) {
  let_next_kernel_start();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kVectorThreads + threadIdx.x;
  const float z = sinkhorn(i < count ? __ldcg(comb + i) : 0.0f, iters, eps);
  wait_for_previous_kernels();
  if (i < count) to[i] = z;
}

/// One thread for each vector of a row.
dim3 vector_grid(int64_t rows, int64_t hidden) {
  return {blocks_of(hidden, kVectorThreads * kVector), static_cast<unsigned int>(rows)};
}

void check_mix(const MhcMix& op) {
  check_shape("mhc_mix", op.h.dim(1), op.h.dim(2));
  need_equal(
      "mhc_mix: format of fn",
      static_cast<int64_t>(op.fn.format),
      static_cast<int64_t>(WeightFormat::kF32)
  );
}

}  // namespace

void mhc_mix(Exec& exec, const MhcMix& op) {
  check_mix(op);
  if (op.h.empty()) return;
  if (has_site_kernel(op.h.dim(2))) {
    run_site_kernel(exec, {.mix = op, .x = {}, .codes = {}, .scales = {}, .a = {}, .norm = {}});
    return;
  }
  launch_overlapped(
      "mhc_mix",
      mix_kernel,
      static_cast<unsigned int>(op.h.dim(0)),
      kThreads,
      0,
      exec.stream,
      mix_args_of(op),
      op.h.data,
      reinterpret_cast<const float*>(op.fn.data),
      op.h.stride(),
      op.norm_eps
  );
}

void mhc_site(Exec& exec, const MhcSite& op) {
  check_mix(op.mix);
  if (op.mix.h.empty()) return;
  if (has_site_kernel(op.mix.h.dim(2))) {
    run_site_kernel(exec, op);
    return;
  }
  mhc_mix(exec, op.mix);
  mhc_collapse(exec, {.x = op.x, .h = op.mix.h, .a = op.a});
  rms_norm(exec, {.y = op.x, .x = op.x, .weight = op.norm, .eps = op.mix.norm_eps});
  quantize_fp8(exec, {.codes = op.codes, .scales = op.scales, .x = op.x});
}

void mhc_collapse(Exec& exec, const MhcCollapse& op) {
  check_shape("mhc_collapse", op.h.dim(1), op.h.dim(2));
  if (op.h.empty()) return;
  const int64_t hidden = op.h.dim(2);
  launch_overlapped(
      "mhc_collapse",
      collapse_kernel,
      vector_grid(op.h.dim(0), hidden),
      kVectorThreads,
      0,
      exec.stream,
      op.x.data,
      op.h.data,
      op.a.data,
      hidden
  );
}

void mhc_expand(Exec& exec, const MhcExpand& op) {
  if (op.h.empty()) return;
  check_shape("mhc_expand", op.h.dim(1), op.h.dim(2));
  constexpr int64_t kFewRows = 64;  // whose passes cost nothing if every block makes them
  const int64_t rows = op.h.dim(0);
  const dim3 grid = vector_grid(rows, op.h.dim(2));
  ExpandArgs args = expand_args(op);
  if (op.sinkhorn_iters > 0 && rows <= kFewRows) {
    launch_overlapped(
        "mhc_expand",
        finish_and_expand_kernel,
        grid,
        kVectorThreads,
        0,
        exec.stream,
        args,
        op.sinkhorn_iters,
        op.hc_eps
    );
    return;
  }
  const Arena::Scope scope(exec.scratch);
  if (op.sinkhorn_iters > 0) {
    const int64_t count = rows * 16;
    auto* comb = exec.scratch.take<float>(count);
    launch_overlapped(
        "mhc_expand",
        sinkhorn_kernel,
        blocks_of(count, kVectorThreads),
        kVectorThreads,
        0,
        exec.stream,
        comb,
        op.comb.data,
        count,
        op.sinkhorn_iters,
        op.hc_eps
    );
    args.comb = comb;
  }
  launch_overlapped("mhc_expand", expand_kernel, grid, kVectorThreads, 0, exec.stream, args);
}

}  // namespace di::ops::cuda
