// What becomes of a unit's results in the wide form, by warps of their own, so that the tensor
// cores go on with the next unit meanwhile: in phase 1 the gated activation, in phase 2 the parts
// of rows.
#pragma once

#include <cstdint>

#include "ops/cuda/expert_stage.cuh"
#include "ops/cuda/expert_work.cuh"
#include "ops/cuda/unpack.cuh"

namespace di::ops::cuda {

inline constexpr int kFinishers = 64;
inline constexpr int kFinisherBarrier = 1;

/// Orders ordinary accesses to device memory and those of the copy engine.
__device__ inline void fence_async_proxy_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

/// A thread of the warps that finish units, across the items of its CTA. Eight threads share
/// a row of the tile, eight channels each.
template <class Shape, class Memory>
class WideFinisher {
 public:
  /// `thread`: its number among them.
  __device__ WideFinisher(const ExpertArguments& op, Memory& memory, int thread)
      : op_(op), memory_(memory), thread_(thread) {}

  __device__ void run() {
    RingPlace<Shape::kItemSlots> items;
    uint32_t parity = 0;
    while (true) {
      barrier_wait(&memory_.item_full[items.slot], items.parity);
      const WorkItem item = memory_.items[items.slot];
      if (item.phase == 0) return;
      if (item.phase == 1) fetch_routing_weights(item);
      barrier_wait(&memory_.stage_full, parity);
      if (item.phase == 1) {
        activate(item);
        barrier_arrive(&memory_.stage_empty);
        announce(item);
      } else {
        store_parts(item);
        barrier_arrive(&memory_.stage_empty);
      }
      barrier_arrive(&memory_.item_empty[items.slot]);
      items.advance();
      parity ^= 1;
    }
  }

 private:
  static constexpr int kRows = kFinishers / 8;  ///< that all threads take at a time
  static constexpr int kRowsOfWarp = 4;
  static constexpr int kWeights = (Shape::kMaxTokens / kRows * kRowsOfWarp + 31) / 32;

  /// Routing weights of the rows that the warp will take, in that order, a few a lane.
  __device__ void fetch_routing_weights(const WorkItem& item) {
#pragma unroll
    for (int i = 0; i < kWeights; ++i) {
      const int number = 32 * i + thread_ % 32;
      const int token =
          number / kRowsOfWarp * kRows + thread_ / 32 * kRowsOfWarp + number % kRowsOfWarp;
      weights_[i] = token < item.count ? op_.lists.weight[item.begin + token] : 0.0f;
    }
  }
  /// That of the thread's row in turn `turn`.
  __device__ float routing_weight(int turn) const {
    float of_turn = weights_[0];
#pragma unroll
    for (int i = 1; i < kWeights; ++i)
      if (turn / 8 == i) of_turn = weights_[i];
    return __shfl_sync(~0u, of_turn, turn % 8 * kRowsOfWarp + thread_ % 32 / 8);
  }

  /// Phase 1: the gated activation as the values of its Q8 codes.
  __device__ void activate(const WorkItem& item) {
    const int octet = thread_ % 8;
    const int channel = kBlockRows * item.unit + kVector * octet;
    auto* u = reinterpret_cast<uint4*>(op_.u_expanded);
    // Two rows at a time, whose latencies overlap.
    for (int turn = 0; turn * kRows < item.count; turn += 2) {
      uint4 values[2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        values[i] = activation((turn + i) * kRows + thread_ / 8, octet, routing_weight(turn + i));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = (turn + i) * kRows + thread_ / 8;
        if (token < item.count && channel < op_.inner)
          u[(int64_t{item.begin + token} * op_.inner + channel) / kVector] = values[i];
      }
    }
  }
  /// Of eight channels of a row, from gate and up.
  __device__ uint4 activation(int token, int octet, float weight) const {
    const uint4 gate = staged(memory_.stage[0], token, octet);
    const uint4 up = staged(memory_.stage[1], token, octet);
    float x[kVector];
    unpack(
        {gated_pair(gate.x, up.x, weight, op_.limit),
         gated_pair(gate.y, up.y, weight, op_.limit),
         gated_pair(gate.z, up.z, weight, op_.limit),
         gated_pair(gate.w, up.w, weight, op_.limit)},
        x
    );
    const Q8Vector q8 = quantize_q8(x);
    uint4 values[2];
    expand_activations({q8.codes.x, q8.codes.y, q8.codes.x, q8.codes.y}, q8.scale, values);
    return values[0];
  }

  /// Tells that the unit's activations are there, the copy engine too.
  __device__ void announce(const WorkItem& item) {
    named_barrier(kFinisherBarrier, kFinishers);
    if (thread_ != 0) return;
    fence_async_proxy_global();
    announce_unit(op_, item.tile);
  }

  /// Phase 2: results to their positions, in whole lines.
  __device__ void store_parts(const WorkItem& item) {
    constexpr int kAtOnce = 4;
    const int octet = thread_ % 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int channel = kBlockRows * (2 * item.unit + half) + kVector * octet;
      if (channel >= op_.hidden) return;
      auto* parts = op_.parts + int64_t{item.begin} * op_.hidden + channel;
      for (int first = thread_ / 8; first < item.count; first += kAtOnce * kRows) {
        uint4 piece[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int token = first + i * kRows;
          if (token < item.count) piece[i] = staged(memory_.stage[half], token, octet);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int token = first + i * kRows;
          if (token < item.count)
            *reinterpret_cast<uint4*>(parts + int64_t{token} * op_.hidden) = piece[i];
        }
      }
    }
  }

  const ExpertArguments& op_;
  Memory& memory_;
  const int thread_;
  float weights_[kWeights];
};

}  // namespace di::ops::cuda
