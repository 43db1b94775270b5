// The expert kernel for many rows an expert, where the tensor cores are the limit. Operand rows lie
// in the order of the lists, already expanded to bf16, so that the copy engine brings tiles of them
// as the tensor cores want them.
//
// Roles of a CTA: one thread streams packed weights, one fetches rows, two warpgroups multiply,
// each 64 rows of fragments by a tile of N rows.
#pragma once

#include <cstdint>

#include "ops/cuda/expert_fragments.cuh"
#include "ops/cuda/expert_results.cuh"
#include "ops/cuda/expert_work.cuh"
#include "ops/cuda/unpack.cuh"
#include "ops/cuda/wgmma.cuh"

namespace di::ops::cuda {

/// The form for tiles of N rows.
template <int N>
struct WideExperts {
  static constexpr int kMaxTokens = N;
  static constexpr int kThreads = kConsumers + 128;
  static constexpr int kTokenSlotBytes = N * 2 * kBlockCols;
  static constexpr int kTokenSlots = 3 * 256 / N;
  static constexpr int kWeightSlots = 6;
  static constexpr int kSteps = 2;  ///< products of a batch
  // In all no more than the 168 that each thread begins with.
  static constexpr int kConsumerRegisters = 232;
  static constexpr int kProducerRegisters = 40;
};

/// The shared memory of a CTA.
template <class Shape>
struct WideMemory {
  alignas(1024) uint8_t tokens[Shape::kTokenSlots][Shape::kTokenSlotBytes];
  alignas(128) uint8_t weights[Shape::kWeightSlots][kWeightSlotBytes];
  alignas(16) uint8_t stage[2][Shape::kMaxTokens * kStagePitch];  ///< one for each warpgroup
  float weight[Shape::kMaxTokens];
  uint64_t weights_full[Shape::kWeightSlots], weights_empty[Shape::kWeightSlots];
  uint64_t tokens_full[Shape::kTokenSlots], tokens_empty[Shape::kTokenSlots];

  /// One thread, before the CTA's first barrier.
  __device__ void init_barriers() {
    for (int i = 0; i < Shape::kWeightSlots; ++i) {
      barrier_init(&weights_full[i], 1);
      barrier_init(&weights_empty[i], kConsumers);
    }
    for (int i = 0; i < Shape::kTokenSlots; ++i) {
      barrier_init(&tokens_full[i], 1);
      barrier_init(&tokens_empty[i], kConsumers);
    }
    barrier_init_fence();
  }
};

/// Orders ordinary accesses to device memory and those of the copy engine.
__device__ inline void fence_async_proxy_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

/// Stores activations of phase 1 as the values of their Q8 codes.
struct ExpandedActivations {
  const ExpertArguments& op;

  __device__ void operator()(int64_t position, int channel, const Q8Vector& q8) const {
    uint4 x[2];
    expand_activations({q8.codes.x, q8.codes.y, q8.codes.x, q8.codes.y}, q8.scale, x);
    reinterpret_cast<uint4*>(op.u_expanded)[(position * op.inner + channel) / 8] = x[0];
  }
  /// Makes them visible to the copy engine.
  __device__ void complete() const { fence_async_proxy_global(); }
};

/// The items of a CTA, in the order that all its roles walk through: CTAs take turns; all of phase
/// 1 comes before phase 2, the units of a tile one after the other.
class WideSchedule {
 public:
  __device__ explicit WideSchedule(const ExpertArguments& op)
      : op_(op), num_tiles_(*op.lists.num_tiles), next_(static_cast<int>(blockIdx.x)) {}

  __device__ WorkItem next() {
    const int number = next_;
    next_ += static_cast<int>(gridDim.x);
    return item_of(op_, number, num_tiles_);
  }

 private:
  const ExpertArguments& op_;
  const int num_tiles_;
  int next_;
};

/// The thread that streams weights.
template <class Shape>
__device__ void run_weight_loader(const ExpertArguments& op, WideMemory<Shape>& memory) {
  WideSchedule schedule(op);
  RingPlace<Shape::kWeightSlots> place;
  for (WorkItem item = schedule.next(); item.phase != 0; item = schedule.next()) {
    if (is_fp8(op, item.expert)) {
      stream_weights<true>(op, item, memory, place);
    } else {
      stream_weights<false>(op, item, memory, place);
    }
  }
}

/// The thread that fetches each tile's rows. `x` and `u` describe the operands of the phases.
template <class Shape>
__device__ void run_row_loader(
    const ExpertArguments& op, const CUtensorMap& x, const CUtensorMap& u, WideMemory<Shape>& memory
) {
  WideSchedule schedule(op);
  RingPlace<Shape::kTokenSlots> place;
  for (WorkItem item = schedule.next(); item.phase != 0; item = schedule.next()) {
    if (item.phase == 2) {
      wait_for_phase_1(op, item.tile);
      fence_async_proxy_global();  // the activations were ordinary writes
    }
    const int chunks = static_cast<int>(column_chunks(columns_of(op, item.phase)));
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const uint32_t full = shared_address(&memory.tokens_full[place.slot]);
      barrier_wait(&memory.tokens_empty[place.slot], place.parity ^ 1);
      barrier_expect(full, Shape::kTokenSlotBytes);
      tensor_load(
          shared_address(memory.tokens[place.slot]),
          item.phase == 1 ? &x : &u,
          chunk * kBlockCols,
          0,
          item.begin,
          full
      );
      place.advance();
    }
  }
}

/// A consumer thread, across the items of its CTA.
template <class Shape>
class WideConsumer {
 public:
  __device__ WideConsumer(const ExpertArguments& op, WideMemory<Shape>& memory)
      : op_(op), memory_(memory) {}

  __device__ __forceinline__ void run() {
    WideSchedule schedule(op_);
    for (WorkItem item = schedule.next(); item.phase != 0; item = schedule.next()) {
      if (is_fp8(op_, item.expert)) {
        work<true>(item);
      } else {
        work<false>(item);
      }
    }
  }

 private:
  static constexpr int N = Shape::kMaxTokens;
  static constexpr int kSteps = Shape::kSteps;

  template <bool kFp8>
  __device__ __forceinline__ void work(const WorkItem& item) {
    float d[N / 2];
    multiply<kFp8>(d, columns_of(op_, item.phase));
    consumers_meet();  // nobody reads an earlier tile's tables any more
    for (int t = static_cast<int>(threadIdx.x); t < item.count; t += kConsumers) {
      memory_.weight[t] = op_.lists.weight[item.begin + t];
    }
    consumers_meet();
    if (item.phase == 1) {
      const ExpandedActivations put{op_};
      finish_gate_up<N>(op_, item, d, memory_.weight, memory_.stage[0], put);
    } else {
      finish_down_staged<N>(op_, item, d, memory_.stage[ConsumerPlace::now().group]);
    }
  }

  /// d = weights · rows over `cols` columns. Products go out in batches of two times 16 columns;
  /// the fragments of one batch are unpacked while the products of the batch before it run.
  template <bool kFp8>
  __device__ __forceinline__ void multiply(float (&d)[N / 2], int cols) {
    const ConsumerPlace at = ConsumerPlace::now();
    const int chunks = static_cast<int>(column_chunks(cols));  // an even number
    clear_sums(d);
    ExpertFragments<kFp8> fragments;
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
          if (kFp8 || second == 1) release_weights();
          if (pair + second != 0) tokens_.advance();
          barrier_wait(&memory_.tokens_full[tokens_.slot], tokens_.parity);
        }
        multiply_batch(d, mine, step, pair == 0 && batch == 0);
        wgmma_wait<1>();
        if (step == 0 && pair + second != 0) release_tokens();
      }
    }
    tokens_.advance();
    wgmma_wait<0>();
    hold_registers(d);
    release_tokens();
  }

  /// Every sum begins with a product that overwrites it; without a value before that, registers
  /// would count as in use from the start of the kernel.
  static __device__ __forceinline__ void clear_sums(float (&d)[N / 2]) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
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
  __device__ __forceinline__ void release_weights() {
    barrier_arrive(&memory_.weights_empty[weights_.slot]);
    weights_.advance();
  }

  /// Gives back the oldest row slot in use.
  __device__ __forceinline__ void release_tokens() {
    barrier_arrive(&memory_.tokens_empty[oldest_]);
    oldest_ = oldest_ + 1 == Shape::kTokenSlots ? 0 : oldest_ + 1;
  }

  /// Enqueues the products of one batch: columns from 16 · step of the current row slot.
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

  const ExpertArguments& op_;
  WideMemory<Shape>& memory_;
  RingPlace<Shape::kWeightSlots> weights_;
  RingPlace<Shape::kTokenSlots> tokens_;
  int oldest_ = 0;  ///< row slot that is not given back yet
};

/// Rows of the operand in the order of the lists, as bf16 times 2^-16: 16 columns a thread.
__global__ void __launch_bounds__(256)
    expand_rows(ExpertArguments op, int rows, int64_t positions, uint4* x) {
  wait_for_previous_kernels();
  let_next_kernel_start();
  const int64_t piece = int64_t{blockIdx.x} * 256 + threadIdx.x;
  const int pieces = op.hidden / 16;
  const int64_t position = piece / pieces;
  if (position >= positions) return;
  const int row = op.lists.target[position] / (op.k + 1);
  if (row < 0 || row >= rows) return;  // a position that no list holds
  const int64_t from = int64_t{row} * op.hidden + (piece - position * pieces) * 16;
  uint4 values[2];
  expand_activations(
      *reinterpret_cast<const uint4*>(op.x_codes + from), op.x_scales[from / 32], values
  );
  x[2 * piece] = values[0];
  x[2 * piece + 1] = values[1];
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) multiply_wide(
    const __grid_constant__ ExpertArguments op,
    const __grid_constant__ CUtensorMap x,
    const __grid_constant__ CUtensorMap u
) {
  extern __shared__ __align__(1024) uint8_t bytes[];
  auto& memory = *reinterpret_cast<WideMemory<Shape>*>(bytes);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) memory.init_barriers();
  __syncthreads();
  wait_for_previous_kernels();
  let_next_kernel_start();
  if (thread < kConsumers) {
    raise_registers<Shape::kConsumerRegisters>();
    WideConsumer<Shape>(op, memory).run();
  } else {
    lower_registers<Shape::kProducerRegisters>();
    if (thread == kConsumers) run_weight_loader<Shape>(op, memory);
    if (thread == kConsumers + 32) run_row_loader<Shape>(op, x, u, memory);
  }
}

}  // namespace di::ops::cuda
