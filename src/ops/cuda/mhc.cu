// Collapse, expand, and the mixes of small models; see mhc.h. The site of a large model is in
// mhc_site.cu.
#include "ops/cuda/launch.h"
#include "ops/cuda/mhc.h"
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

struct ExpandArgs {
  bf16* out;
  const bf16* y;
  const bf16* h;
  const float* post;
  const float* comb;
  int64_t hidden;
};

/// The reference's value of two neighbouring channels of output stream j, from memory.
__device__ inline uint32_t exact_expand(const ExpandArgs& op, int64_t row, int j, int64_t d) {
  float a[kStreams];
  uint32_t h[kStreams];
#pragma unroll
  for (int i = 0; i < kStreams; ++i) {
    a[i] = op.comb[row * 16 + i * kStreams + j];
    h[i] = *reinterpret_cast<const uint32_t*>(op.h + (row * kStreams + i) * op.hidden + d);
  }
  const uint32_t y = *reinterpret_cast<const uint32_t*>(op.y + row * op.hidden + d);
  const float post = op.post[row * kStreams + j];
  const float low =
      exact_mix(a, low_float(h[0]), low_float(h[1]), low_float(h[2]), low_float(h[3]));
  const float high =
      exact_mix(a, high_float(h[0]), high_float(h[1]), high_float(h[2]), high_float(h[3]));
  return round_pair(post * low_float(y) + low, post * high_float(y) + high);
}

/// A thread for eight channels of a row and all four streams. Sums are made in fp32 with a bound of
/// their error, as in collapse_vector; the pairs for which it does not do are written again.
__global__ void __launch_bounds__(kVectorThreads) expand_kernel(ExpandArgs op) {
  const int64_t row = blockIdx.y;
  const int64_t d = (static_cast<int64_t>(blockIdx.x) * kVectorThreads + threadIdx.x) * kVector;
  if (d >= op.hidden) return;
  float y[kVector];
  float h[kStreams][kVector];
  unpack(load_vector(op.y + row * op.hidden + d), y);
#pragma unroll
  for (int i = 0; i < kStreams; ++i)
    unpack(load_vector(op.h + (row * kStreams + i) * op.hidden + d), h[i]);
  float largest[kVector];
#pragma unroll
  for (int k = 0; k < kVector; ++k) {
    largest[k] = fmaxf(
        fmaxf(fmaxf(fabsf(h[0][k]), fabsf(h[1][k])), fmaxf(fabsf(h[2][k]), fabsf(h[3][k]))),
        fabsf(y[k])
    );
  }
  uint32_t doubtful = 0;
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    float a[kStreams];
#pragma unroll
    for (int i = 0; i < kStreams; ++i)
      a[i] = op.comb[row * 16 + i * kStreams + j];
    const float post = op.post[row * kStreams + j];
    const float weight =
        kSumError * (fabsf(a[0]) + fabsf(a[1]) + fabsf(a[2]) + fabsf(a[3]) + fabsf(post));
    uint32_t pairs[4];
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      float sum[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int at = 2 * p + k;
        sum[k] = fmaf(a[3], h[3][at], fmaf(a[2], h[2][at], fmaf(a[1], h[1][at], a[0] * h[0][at])));
        sum[k] = fmaf(post, y[at], sum[k]);
      }
      bool is_safe = false;
      pairs[p] = round_pair_within(
          sum[0], sum[1], weight * largest[2 * p], weight * largest[2 * p + 1], is_safe
      );
      doubtful |= is_safe ? 0u : 1u << (4 * j + p);
    }
    store_vector(
        op.out + (row * kStreams + j) * op.hidden + d, {pairs[0], pairs[1], pairs[2], pairs[3]}
    );
  }
  for (; doubtful != 0; doubtful &= doubtful - 1) {
    const int bit = __ffs(static_cast<int>(doubtful)) - 1;
    const int64_t channel = d + bit % 4 * 2;
    *reinterpret_cast<uint32_t*>(op.out + (row * kStreams + bit / 4) * op.hidden + channel) =
        exact_expand(op, row, bit / 4, channel);
  }
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
  const MixArgs args{
      .pre = op.pre.data,
      .post = op.post.data,
      .comb = op.comb.data,
      .mixes = op.mixes.data,
      .scale = op.scale.data,
      .base = op.base.data,
      .sinkhorn_iters = op.sinkhorn_iters,
      .hc_eps = op.hc_eps};
  mix_kernel<<<static_cast<unsigned int>(op.h.dim(0)), kThreads, 0, exec.stream>>>(
      args, op.h.data, reinterpret_cast<const float*>(op.fn.data), op.h.stride(), op.norm_eps
  );
  check_launch("mhc_mix");
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
  collapse_kernel<<<vector_grid(op.h.dim(0), hidden), kVectorThreads, 0, exec.stream>>>(
      op.x.data, op.h.data, op.a.data, hidden
  );
  check_launch("mhc_collapse");
}

void mhc_expand(Exec& exec, const MhcExpand& op) {
  check_shape("mhc_expand", op.h.dim(1), op.h.dim(2));
  if (op.h.empty()) return;
  const ExpandArgs args{
      .out = op.h_out.data,
      .y = op.y.data,
      .h = op.h.data,
      .post = op.post.data,
      .comb = op.comb.data,
      .hidden = op.h.dim(2)};
  expand_kernel<<<vector_grid(op.h.dim(0), args.hidden), kVectorThreads, 0, exec.stream>>>(args);
  check_launch("mhc_expand");
}

}  // namespace di::ops::cuda
