// Router: a block for each row, whose threads evaluate the scores and whose first warp picks the k
// best by k rounds of a warp-wide maximum. Activation: a thread for each element.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/moe.h"
#include "ops/cuda/swiglu.cuh"

namespace di::ops::cuda {
namespace {

constexpr int kRouteThreads = 128;
constexpr int kActivationThreads = 256;
constexpr int kMaxSelected = 32;  // one for each lane of a warp

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

/// The whole warp: the index of the largest of `order`, the lowest of equals; it is marked taken.
__device__ int take_best(uint32_t* order, int experts, int lane) {
  uint32_t best = 0;
  int best_id = experts;
  for (int e = lane; e < experts; e += 32) {
    if (order[e] > best) {
      best = order[e];
      best_id = e;
    }
  }
  const uint32_t top = __reduce_max_sync(~0u, best);
  const int id = __reduce_min_sync(~0u, best == top ? best_id : experts);
  if (id % 32 == lane) order[id] = 0;
  __syncwarp();
  return id;
}

/// The whole warp: the k best in ascending order, lane i holding the i-th.
__device__ int select_ascending(uint32_t* order, int experts, int k, int lane) {
  int mine = experts;
  for (int i = 0; i < k; ++i) {
    const int id = take_best(order, experts, lane);
    if (lane == i) mine = id;
  }
  int ascending = experts;
  for (int i = 0; i < k; ++i) {
    const int id = __shfl_sync(~0u, mine, i);
    const int rank = __popc(__ballot_sync(~0u, mine < id));
    if (lane == rank) ascending = id;
  }
  return ascending;
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

__global__ void route_kernel(RouteArguments op) {
  extern __shared__ float score[];
  auto* order = reinterpret_cast<uint32_t*>(score + op.experts);
  const int64_t row = blockIdx.x;
  const bool is_image = op.is_image != nullptr && op.is_image[row] != 0;
  const float* bias = is_image ? op.bias_vl : op.bias;
  for (int e = threadIdx.x; e < op.experts; e += kRouteThreads) {
    score[e] = sqrt_softplus(op.logits[row * op.experts + e]);
    order[e] = order_of(bias == nullptr ? score[e] : score[e] + bias[e]);
  }
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const int lane = threadIdx.x;
  int id = 0;
  if (op.fixed_ids == nullptr) {
    id = select_ascending(order, op.experts, op.k, lane);
  } else if (lane < op.k) {
    id = op.fixed_ids[row * op.k + lane];
  }
  const bool valid = lane < op.k && id >= 0 && id < op.experts;
  const float mine = valid ? score[id] : 0.0f;
  double total = 0;
  for (int i = 0; i < op.k; ++i)
    total += __shfl_sync(~0u, mine, i);
  const float divisor = static_cast<float>(total) + 1e-20f;
  if (lane < op.k) {
    op.ids[row * op.k + lane] = id;
    op.weights[row * op.k + lane] = mine / divisor * op.route_scale;
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
  const std::size_t shared = static_cast<std::size_t>(experts) * 8;
  route_kernel<<<static_cast<unsigned>(rows), kRouteThreads, shared, exec.stream>>>(arguments);
  check_launch("route");
}

void swiglu(Exec& exec, const SwiGlu& op) {
  const int64_t count = op.u.size();
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>((count + kActivationThreads - 1) / kActivationThreads);
  swiglu_kernel<<<blocks, kActivationThreads, 0, exec.stream>>>(
      op.u.data, op.gate.data, op.up.data, op.weights.data, count, op.u.dim(1), op.limit
  );
  check_launch("swiglu");
}

}  // namespace di::ops::cuda
