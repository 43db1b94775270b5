// The consuming role of the expert kernel: products of unpacked weights and tokens, and what
// becomes of the sums. Every sum is one chain of products in ascending columns, whatever the width
// of the tile, so a row's bits do not depend on the rows beside it.
#pragma once

#include <cstdint>

#include "ops/cuda/expert_fragments.cuh"
#include "ops/cuda/expert_work.cuh"
#include "ops/cuda/swiglu.cuh"
#include "ops/cuda/vectors.cuh"
#include "ops/cuda/wgmma.cuh"

namespace di::ops::cuda {

/// Undoes the constant powers of two of unpacked operands.
inline constexpr float kExpertSumFactor = 0x1p48f;
static_assert(kWeightShift + kActivationShift == 48);

inline constexpr int kConsumerBarrier = 2;

/// A consumer thread, across the items of its CTA.
template <class Shape>
class Consumer {
 public:
  __device__ Consumer(const ExpertArguments& op, ExpertMemory<Shape>& memory)
      : op_(op), memory_(memory) {}

  __device__ __forceinline__ void run() {
    RingPlace<kItemSlots> items;
    while (true) {
      barrier_wait(&memory_.item_full[items.slot], items.parity);
      const WorkItem item = memory_.items[items.slot];
      if (item.phase == 0) return;
      slot_ = items.slot;
      work(item);
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(&memory_.item_empty[items.slot]);
      items.advance();
    }
  }

 private:
  static constexpr int kSteps = 2;  // products of a batch

  __device__ __forceinline__ void work(const WorkItem& item) {
    if constexpr (Shape::kWide) {
      work_width<Shape::kMaxTokens>(item);
    } else {
      switch (tile_width<Shape>(item.count)) {
        case 8: work_width<8>(item); break;
        case 16: work_width<16>(item); break;
        case 32: work_width<32>(item); break;
        default: work_width<64>(item); break;
      }
    }
  }

  template <int N>
  __device__ __forceinline__ void work_width(const WorkItem& item) {
    const bool fp8 = item.expert == op_.experts ? op_.shared_fp8 : op_.routed_fp8;
    if (item.phase == 1) {
      if (fp8) {
        work_tile<N, true, true>(item);
      } else {
        work_tile<N, false, true>(item);
      }
    } else {
      if (fp8) {
        work_tile<N, true, false>(item);
      } else {
        work_tile<N, false, false>(item);
      }
    }
  }

  template <int N, bool kFp8, bool kGateUp>
  __device__ __forceinline__ void work_tile(const WorkItem& item) {
    float d[N / 2];
    const int cols = kGateUp ? op_.hidden : op_.inner;
    if constexpr (Shape::kWide) {
      multiply_by_groups<N, kFp8, kGateUp>(d, cols);
    } else {
      multiply_by_warps<N, kFp8, kGateUp>(d, cols);
    }
    if constexpr (kGateUp) {
      finish_gate_up<N>(d, item);
    } else {
      finish_down<N>(d, item);
    }
  }

  /// d = weights · tokens over `cols` columns: by warps, each for its own 16 rows of fragments.
  template <int N, bool kFp8, bool kGateUp>
  __device__ __forceinline__ void multiply_by_warps(float (&d)[N / 2], int cols) {
    constexpr int kPerTokenSlot = chunks_of_slot<Shape>(N);
    const ConsumerPlace at = ConsumerPlace::now();
    const int chunks = static_cast<int>(column_chunks(cols));
    const int lane = at.thread % 32;
#pragma unroll
    for (float& sum : d)
      sum = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      ExpertFragments<kFp8, kGateUp> fragments;
      read_weights<kFp8>(fragments, at, chunk % 2);
      const int part = chunk % kPerTokenSlot;
      if (part == 0) barrier_wait(&memory_.tokens_full[tokens_.slot], tokens_.parity);
      const uint32_t tile =
          shared_address(memory_.tokens[tokens_.slot]) + part * N * 2 * kBlockCols;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t a[2][4];
        fragments.get(2 * half, a[0]);
        fragments.get(2 * half + 1, a[1]);
#pragma unroll
        for (int j = 0; j < N / 8; ++j) {
          uint32_t b[4];
          load_matrices(tile + swizzled_offset(8 * j + lane % 8, 4 * half + lane / 8), b);
          mma_bf16(d + 4 * j, a[0], b[0], b[1]);
          mma_bf16(d + 4 * j, a[1], b[2], b[3]);
        }
      }
      if (kFp8 || chunk % 2 == 1) release_weights(at);
      if (part == kPerTokenSlot - 1 || chunk == chunks - 1) {
        __syncwarp();
        release_tokens(at);
        tokens_.advance();
      }
    }
  }

  /// The same by the whole warpgroup. Products go out in batches of two times 16 columns; the
  /// fragments of one batch are unpacked while the products of the batch before it run.
  template <int N, bool kFp8, bool kGateUp>
  __device__ __forceinline__ void multiply_by_groups(float (&d)[N / 2], int cols) {
    const ConsumerPlace at = ConsumerPlace::now();
    const int chunks = static_cast<int>(column_chunks(cols));  // an even number
    clear_sums(d);
    ExpertFragments<kFp8, kGateUp> fragments;
    uint32_t a[2][kSteps][4];
    for (int pair = 0; pair < chunks; pair += 2) {
#pragma unroll
      for (int batch = 0; batch < 8 / kSteps; ++batch) {
        const int second = batch * kSteps / 4;  // of the two chunks
        const int step = batch * kSteps % 4;
        uint32_t(&mine)[kSteps][4] = a[batch % 2];
        if (step == 0) read_weights<kFp8>(fragments, at, second);
#pragma unroll
        for (int k = 0; k < kSteps; ++k)
          fragments.get(step + k, mine[k]);
        if (step == 0) {
          if (kFp8 || second == 1) release_weights(at);
          if (pair + second != 0) tokens_.advance();
          barrier_wait(&memory_.tokens_full[tokens_.slot], tokens_.parity);
        }
        multiply_batch<N>(d, mine, step, pair == 0 && batch == 0);
        wgmma_wait<1>();
        if (step == 0 && pair + second != 0) release_tokens(at);
      }
    }
    tokens_.advance();
    wgmma_wait<0>();
    hold_registers(d);
    release_tokens(at);
  }

  /// Every sum begins with a product that overwrites it; without a value before that, registers
  /// would count as in use from the start of the kernel.
  template <int kCount>
  static __device__ __forceinline__ void clear_sums(float (&d)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      asm volatile("mov.f32 %0, 0f00000000;" : "=f"(d[i]));
  }

  /// Codes of the next chunk: in FP4 the first or the second of the current weight slot.
  template <bool kFp8, class Fragments>
  __device__ __forceinline__ void read_weights(
      Fragments& fragments, const ConsumerPlace& at, int second
  ) {
    const int block = kFp8 ? 0 : second;
    if (block == 0) barrier_wait(&memory_.weights_full[weights_.slot], weights_.parity);
    fragments.from(memory_.weights[weights_.slot] + block * WeightSlot<kFp8>::kBlock, at);
  }
  __device__ __forceinline__ void release_weights(const ConsumerPlace& at) {
    __syncwarp();
    if (at.thread % 32 == 0) barrier_arrive(&memory_.weights_empty[weights_.slot]);
    weights_.advance();
  }

  /// Gives back the oldest token slot in use.
  __device__ __forceinline__ void release_tokens(const ConsumerPlace& at) {
    if (at.thread % 32 == 0) barrier_arrive(&memory_.tokens_empty[oldest_]);
    oldest_ = oldest_ + 1 == Shape::kTokenSlots ? 0 : oldest_ + 1;
  }

  /// Enqueues the products of one batch: columns from 16 · step of the current token slot.
  template <int N>
  __device__ __forceinline__ void multiply_batch(
      float (&d)[N / 2], uint32_t (&a)[kSteps][4], int step, bool first
  ) {
    const uint32_t tile = shared_address(memory_.tokens[tokens_.slot]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      wgmma_bf16<N>(d, a[k], b_descriptor(tile, step + k), k != 0 || !first);
    wgmma_commit();
  }

  /// Phase 1: the gated activation of gate and up, its Q8 codes, and word that they are there.
  template <int N>
  __device__ __forceinline__ void finish_gate_up(const float (&d)[N / 2], const WorkItem& item) {
    const ConsumerPlace at = ConsumerPlace::now();
    named_barrier(kConsumerBarrier, 256);  // nobody reads an earlier tile's stage any more
    const int channel = 16 * at.warp() + 2 * at.row_pair() + at.group;
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = 8 * j + 2 * (at.thread % 4) + i;
        if (token >= item.count) continue;
        const float u = activation(d[4 * j + i], d[4 * j + 2 + i], memory_.weight[slot_][token]);
        *reinterpret_cast<bf16*>(memory_.stage + token * Shape::kStagePitch + 2 * channel) =
            to_bf16(u);
      }
    }
    named_barrier(kConsumerBarrier, 256);
    quantize_stage(at, item);
    named_barrier(kConsumerBarrier, 256);
    if (at.thread == 0 && at.group == 0) {
      __threadfence();
      atomicAdd(op_.lists.counters + 1 + item.tile, 1);
    }
  }

  __device__ float activation(float gate_sum, float up_sum, float weight) const {
    const float gate = round_bf16(gate_sum * kExpertSumFactor);
    const float up = round_bf16(up_sum * kExpertSumFactor);
    return weight * (silu_fast(limit_gate(gate, op_.limit)) * limit_up(up, op_.limit));
  }

  /// Eight threads for each token, eight channels a thread.
  __device__ __forceinline__ void quantize_stage(const ConsumerPlace& at, const WorkItem& item) {
    const int thread = 128 * at.group + at.thread;
    const int octet = thread % 8;
    const int channel = 64 * item.unit + 8 * octet;
    for (int first = 0; first < item.count; first += 32) {
      const int token = first + thread / 8;
      const bool mine = token < item.count && channel < op_.inner;
      float x[kVector] = {};
      if (mine) {
        unpack(
            *reinterpret_cast<const uint4*>(
                memory_.stage + token * Shape::kStagePitch + 16 * octet
            ),
            x
        );
      }
      const Q8Vector q8 = quantize_q8(x);
      if (!mine) continue;
      const int64_t row = item.begin + token;
      *reinterpret_cast<uint2*>(op_.u_codes + row * op_.inner + channel) = q8.codes;
      if (octet % 4 == 0) op_.u_scales[(row * op_.inner + channel) / 32] = q8.scale;
    }
  }

  /// Phase 2: results to the rows' slots.
  template <int N>
  __device__ __forceinline__ void finish_down(const float (&d)[N / 2], const WorkItem& item) {
    const ConsumerPlace at = ConsumerPlace::now();
    const int row_tile = 2 * item.unit + at.group;
    const int channel = kBlockRows * row_tile + 16 * at.warp() + 2 * at.row_pair();
    if (channel >= op_.hidden) return;
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = 8 * j + 2 * (at.thread % 4) + i;
        if (token >= item.count) continue;
        const int64_t target = memory_.target[slot_][token];
        *reinterpret_cast<uint32_t*>(op_.parts + target * op_.hidden + channel) =
            round_pair(d[4 * j + i] * kExpertSumFactor, d[4 * j + 2 + i] * kExpertSumFactor);
      }
    }
  }

  const ExpertArguments& op_;
  ExpertMemory<Shape>& memory_;
  int slot_ = 0;  ///< of the current item
  RingPlace<Shape::kWeightSlots> weights_;
  RingPlace<Shape::kTokenSlots> tokens_;
  int oldest_ = 0;  ///< token slot that is not given back yet
};

}  // namespace di::ops::cuda
