// Router: a block for each row and a thread for each expert (or up to four). Every warp picks its
// own k best by k rounds of a warp-wide maximum, the first warp the k best of these. Activation: a
// thread for each element.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/moe.h"
#include "ops/cuda/swiglu.cuh"

namespace di::ops::cuda {
namespace {

constexpr int kMaxRouteThreads = 512;
constexpr int kKeys = 4;  // experts of a thread at most
constexpr int kActivationThreads = 256;
constexpr int kMaxSelected = 32;  // one for each lane of a warp
/// Keys of a lane when the first warp chooses among the best of all.
constexpr int kFinalists = kMaxRouteThreads / 32 * kMaxSelected / 32;

/// √softplus of ops/canonical.h.
__device__ float sqrt_softplus(float x) {
  const double wide = x;
  const float softplus = static_cast<float>(wide > 20.0 ? wide : log1p(exp(wide)));
  return static_cast<float>(sqrt(static_cast<double>(softplus)));
}

/// Integers in the order of floats. 0 is left for entries that are taken, 1 is NaN.
__device__ uint32_t order_of(float x) {
  if (isnan(x)) return 1;
  const uint32_t bits = __float_as_uint(x + 0.0f);  // −0 becomes +0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/// An expert's place in the selection: the best first, the lowest of equals. 0: nobody.
__device__ uint64_t key_of(float x, int expert) {
  return uint64_t{order_of(x)} << 32 | (0xffffffffu - static_cast<uint32_t>(expert));
}
__device__ int expert_of(uint64_t key) {
  return static_cast<int>(0xffffffffu - static_cast<uint32_t>(key));
}

/// The largest key of the warp.
__device__ uint64_t largest_of_warp(uint64_t key) {
  const uint32_t high = __reduce_max_sync(~0u, static_cast<uint32_t>(key >> 32));
  const uint32_t low = __reduce_max_sync(~0u, key >> 32 == high ? static_cast<uint32_t>(key) : 0u);
  return uint64_t{high} << 32 | low;
}

/// The whole warp: takes the largest of its lanes' first `used` keys out of them and returns it.
template <int kCount>
__device__ uint64_t take_largest(uint64_t (&keys)[kCount], int used) {
  uint64_t mine = keys[0];
#pragma unroll
  for (int j = 1; j < kCount; ++j)
    if (j < used) mine = max(mine, keys[j]);
  const uint64_t top = largest_of_warp(mine);
#pragma unroll
  for (int j = 0; j < kCount; ++j)
    if (j < used && keys[j] == top) keys[j] = 0;
  return top;
}

/// The whole warp: how many of the first k lanes have a lower id than this one.
__device__ int rank_among(int id, int k) {
  int rank = 0;
  for (int i = 0; i < k; ++i)
    rank += __shfl_sync(~0u, id, i) < id ? 1 : 0;
  return rank;
}

struct RouteArguments {
  int32_t* ids;
  float* weights;
  const float* logits;
  const float* bias;         // or nullptr
  const float* bias_vl;      // or nullptr
  const uint8_t* is_image;   // or nullptr
  const int32_t* fixed_ids;  // or nullptr
  int experts;
  int k;
  float route_scale;
};

/// Bytes of shared memory: the experts' scores, then the best keys of each warp.
int route_bytes(int experts, int threads, int k) {
  return (experts + 1) / 2 * 8 + threads / 32 * k * 8;
}

__global__ void __launch_bounds__(kMaxRouteThreads) route_kernel(RouteArguments op) {
  extern __shared__ __align__(8) float score[];
  __shared__ float chosen[kMaxSelected];
  auto* best = reinterpret_cast<uint64_t*>(score + (op.experts + 1) / 2 * 2);
  join_kernel_chain();
  const int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool is_image = op.is_image != nullptr && op.is_image[row] != 0;
  const float* bias = is_image ? op.bias_vl : op.bias;
  uint64_t keys[kKeys] = {};
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const int e = static_cast<int>(threadIdx.x) + i * static_cast<int>(blockDim.x);
    if (e >= op.experts) break;
    const float own_bias = bias == nullptr ? 0.0f : bias[e];
    score[e] = sqrt_softplus(op.logits[row * op.experts + e]);
    keys[i] = key_of(bias == nullptr ? score[e] : score[e] + own_bias, e);
  }
  for (int i = 0; op.fixed_ids == nullptr && i < op.k; ++i) {
    const uint64_t top = take_largest(keys, kKeys);
    if (lane == 0) best[threadIdx.x / 32 * op.k + i] = top;
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  int id = op.experts;
  int rank = lane;
  if (op.fixed_ids == nullptr) {
    const int count = static_cast<int>(blockDim.x) / 32 * op.k;
    uint64_t finalists[kFinalists] = {};
#pragma unroll
    for (int j = 0; j < kFinalists; ++j)
      if (j * 32 + lane < count) finalists[j] = best[j * 32 + lane];
    for (int i = 0; i < op.k; ++i) {
      const uint64_t top = take_largest(finalists, (count + 31) / 32);
      if (lane == i) id = expert_of(top);
    }
    rank = rank_among(id, op.k);
  } else if (lane < op.k) {
    id = op.fixed_ids[row * op.k + lane];
  }
  if (lane < op.k) chosen[rank] = id >= 0 && id < op.experts ? score[id] : 0.0f;
  __syncwarp();
  double total = 0;
  for (int i = 0; i < op.k; ++i)
    total += chosen[i];
  const float divisor = static_cast<float>(total) + 1e-20f;
  if (lane < op.k) {
    op.ids[row * op.k + rank] = id;
    op.weights[row * op.k + rank] = chosen[rank] / divisor * op.route_scale;
  }
}

__global__ void swiglu_kernel(
    bf16* u,
    const bf16* gate,
    const bf16* up,
    const float* weights,
    int64_t count,
    int64_t inner,
    float limit
) {
  join_kernel_chain();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kActivationThreads + threadIdx.x;
  if (i >= count) return;
  float value = silu_exact(limit_gate(to_float(gate[i]), limit)) * limit_up(to_float(up[i]), limit);
  if (weights != nullptr) value = weights[i / inner] * value;
  u[i] = to_bf16(value);
}

}  // namespace

void route(Exec& exec, const Route& op) {
  const int64_t rows = op.logits.dim(0);
  const int64_t experts = op.logits.dim(1);
  const int64_t k = op.ids.dim(1);
  if (k > std::min<int64_t>(kMaxSelected, experts) || experts > kMaxRoutedExperts) {
    throw Error(
        ErrorCode::kUnsupported,
        "router: expected at most 32 selected of at most 2048 experts, found " + std::to_string(k) +
            " of " + std::to_string(experts)
    );
  }
  if (rows == 0) return;
  const RouteArguments arguments{
      .ids = op.ids.data,
      .weights = op.weights.data,
      .logits = op.logits.data,
      .bias = op.bias.data,
      .bias_vl = op.bias_vl.data,
      .is_image = op.is_image.data,
      .fixed_ids = op.fixed_ids.data,
      .experts = static_cast<int>(experts),
      .k = static_cast<int>(k),
      .route_scale = op.route_scale};
  // A thread for every expert is fastest for a row alone, fewer of them for many rows.
  constexpr int64_t kFewRows = 132;
  const int share = rows <= kFewRows ? arguments.experts : arguments.experts / kKeys + 1;
  const int threads = std::clamp((share + 31) / 32 * 32, 128, kMaxRouteThreads);
  launch_overlapped(
      "route",
      route_kernel,
      static_cast<unsigned>(rows),
      threads,
      route_bytes(arguments.experts, threads, arguments.k),
      exec.stream,
      arguments
  );
}

void swiglu(Exec& exec, const SwiGlu& op) {
  const int64_t count = op.u.size();
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>((count + kActivationThreads - 1) / kActivationThreads);
  launch_overlapped(
      "swiglu",
      swiglu_kernel,
      blocks,
      kActivationThreads,
      0,
      exec.stream,
      op.u.data,
      op.gate.data,
      op.up.data,
      op.weights.data,
      count,
      op.u.dim(1),
      op.limit
  );
}

}  // namespace di::ops::cuda
