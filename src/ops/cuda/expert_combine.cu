#include "ops/cuda/expert_combine.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/shapes.h"
#include "ops/cuda/vectors.cuh"

namespace di::ops::cuda {
namespace {

/// Parts of a row that are fetched together.
constexpr int kPartsAtOnce = 8;

/// Sums each row's parts in the order of slots, in fp32. Blocks are small for few rows, so that
/// they find room beside the kernel before. `positions` may be read while that still works: it let
/// this one start when they were complete.
__global__ void __launch_bounds__(256, 4)
    sum_parts(bf16* y, const bf16* parts, const int32_t* positions, int k, int hidden) {
  const int64_t row = blockIdx.y;
  const int channel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * kVector;
  const bf16* all = parts + channel;
  float sum[kVector] = {};
  for (int first = 0; first <= k; first += kPartsAtOnce) {
    int position[kPartsAtOnce];
    uint4 part[kPartsAtOnce];
#pragma unroll
    for (int i = 0; i < kPartsAtOnce; ++i)
      position[i] = first + i <= k ? positions[row * (k + 1) + first + i] : -1;
    if (first == 0) {
      wait_for_previous_kernels();
      let_next_kernel_start();
      if (channel >= hidden) return;
    }
#pragma unroll
    for (int i = 0; i < kPartsAtOnce; ++i)
      if (position[i] >= 0) part[i] = load_vector(all + int64_t{position[i]} * hidden);
#pragma unroll
    for (int i = 0; i < kPartsAtOnce; ++i) {
      if (position[i] < 0) continue;
      float x[kVector];
      unpack(part[i], x);
#pragma unroll
      for (int c = 0; c < kVector; ++c)
        sum[c] += x[c];
    }
  }
  store_vector(y + row * hidden + channel, pack(sum));
}

}  // namespace

void combine_experts(Exec& exec, const View<bf16, 2>& y, const ExpertParts& parts) {
  constexpr int64_t kFewRows = 64;
  const int64_t rows = y.dim(0);
  const int64_t hidden = y.dim(1);
  const int threads = rows <= kFewRows ? 64 : 256;
  const dim3 grid(blocks_of(hidden, threads * kVector), static_cast<unsigned>(rows));
  launch_overlapped(
      "experts",
      sum_parts,
      grid,
      threads,
      0,
      exec.stream,
      y.data,
      parts.parts,
      parts.positions,
      static_cast<int>(parts.k),
      static_cast<int>(hidden)
  );
}

}  // namespace di::ops::cuda
