// What becomes of the sums of an expert's products, in either form of the kernel: the gated
// activation in Q8 after phase 1, the expert's part of a row's result after phase 2.
#pragma once

#include <cstdint>

#include "ops/cuda/expert_fragments.cuh"
#include "ops/cuda/expert_work.cuh"
#include "ops/cuda/swiglu.cuh"
#include "ops/cuda/vectors.cuh"

namespace di::ops::cuda {

/// Undoes the constant powers of two of unpacked operands.
inline constexpr float kExpertSumFactor = 0x1p48f;
static_assert(kWeightShift + kActivationShift == 48);

/// Bytes of a row of staged activations: 64 channels in bf16, and what keeps rows in other banks.
inline constexpr int kStagePitch = 2 * kBlockRows + 16;

inline constexpr int kConsumerBarrier = 1;
__device__ inline void consumers_meet() {
  named_barrier(kConsumerBarrier, kConsumers);
}

/// The activations of two elements from gate and up in bf16; `weight` is the routing weight.
__device__ inline uint32_t gated_pair(uint32_t gates, uint32_t ups, float weight, float limit) {
  const auto one = [&](float gate, float up) {
    return weight * (silu_fast(limit_gate(gate, limit)) * limit_up(up, limit));
  };
  return round_pair(one(low_float(gates), low_float(ups)), one(high_float(gates), high_float(ups)));
}

/// Q8 of the staged activations: eight threads for each row, eight channels a thread, handed to
/// `put`(position, channel, values in Q8).
template <class Put>
__device__ __forceinline__ void quantize_stage(
    const ExpertArguments& op, const WorkItem& item, const uint8_t* stage, const Put& put
) {
  const int thread = static_cast<int>(threadIdx.x);
  const int octet = thread % 8;
  const int channel = kBlockRows * item.unit + 8 * octet;
  for (int first = 0; first < item.count; first += kConsumers / 8) {
    const int token = first + thread / 8;
    const bool mine = token < item.count && channel < op.inner;
    float x[kVector] = {};
    if (mine) unpack(*reinterpret_cast<const uint4*>(stage + token * kStagePitch + 16 * octet), x);
    const Q8Vector q8 = quantize_q8(x);
    if (mine) put(item.begin + token, channel, q8);
  }
}

/// The i-th pair of neighbouring results that a thread holds, as bf16, and its row of the tile.
template <int N>
__device__ __forceinline__ uint32_t result_pair(const float (&d)[N / 2], int i) {
  const int sum = 4 * (i / 2) + i % 2;
  return round_pair(d[sum] * kExpertSumFactor, d[sum + 2] * kExpertSumFactor);
}
__device__ inline int result_token(const ConsumerPlace& at, int i) {
  return 8 * (i / 2) + 2 * (at.thread % 4) + i % 2;
}

/// Phase 1: the gated activation of gate and up to `put`. Warpgroup 0 holds gate and 1 up: each
/// passes half of its results to the other through `stage`, and leaves activations there. `weight`
/// holds the tile's routing weights in shared memory, for all after the first barrier here.
template <int N, class Put>
__device__ __forceinline__ void finish_gate_up(
    const ExpertArguments& op,
    const WorkItem& item,
    const float (&d)[N / 2],
    const float* weight,
    uint8_t* stage,
    const Put& put
) {
  const ConsumerPlace at = ConsumerPlace::now();
  const int offset = 2 * (16 * at.warp() + 2 * at.row_pair());
  const auto staged = [&](int token) {
    return reinterpret_cast<uint32_t*>(stage + token * kStagePitch + offset);
  };
  consumers_meet();  // nobody reads an earlier tile's stage any more
#pragma unroll
  for (int i = 0; i < N / 4; ++i) {
    const int owner = i < N / 8 ? 0 : 1;
    if (at.group != owner) *staged(result_token(at, i)) = result_pair<N>(d, i);
  }
  consumers_meet();
#pragma unroll
  for (int i = 0; i < N / 4; ++i) {
    const int owner = i < N / 8 ? 0 : 1;
    const int token = result_token(at, i);
    if (at.group != owner || token >= item.count) continue;
    const uint32_t mine = result_pair<N>(d, i);
    const uint32_t other = *staged(token);
    *staged(token) =
        gated_pair(owner == 0 ? mine : other, owner == 0 ? other : mine, weight[token], op.limit);
  }
  consumers_meet();
  quantize_stage(op, item, stage, put);
}

/// One thread, which knows that a unit's activations are written: tells who waits for the tile.
__device__ inline void announce_unit(const ExpertArguments& op, int tile) {
  __threadfence();
  atomicAdd(ready_counter(op, tile), 1);
}

/// Phase 2: results to their positions.
template <int N>
__device__ __forceinline__ void finish_down(
    const ExpertArguments& op, const WorkItem& item, const float (&d)[N / 2]
) {
  const ConsumerPlace at = ConsumerPlace::now();
  const int row_tile = 2 * item.unit + at.group;
  const int channel = kBlockRows * row_tile + 16 * at.warp() + 2 * at.row_pair();
  if (channel >= op.hidden) return;
#pragma unroll
  for (int i = 0; i < N / 4; ++i) {
    const int token = result_token(at, i);
    if (token >= item.count) continue;
    const int64_t position = item.begin + token;
    *reinterpret_cast<uint32_t*>(op.parts + position * op.hidden + channel) = result_pair<N>(d, i);
  }
}

}  // namespace di::ops::cuda
