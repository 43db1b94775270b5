// The expert kernel for more than a few rows an expert, where unpacking and the tensor cores are
// the limit. Operand rows lie in the order of the lists, already expanded to bf16, so that the copy
// engine brings tiles of them as the tensor cores want them.
//
// Roles of a CTA: one thread hands out work and streams packed weights, one fetches rows, two
// warpgroups multiply, each 64 rows of fragments by a tile of up to 256 rows, as wide as it must
// be, and leave results in shared memory, where two warps finish them.
#pragma once

#include <cstdint>

#include "ops/cuda/expert_finish.cuh"
#include "ops/cuda/expert_fragments.cuh"
#include "ops/cuda/expert_stage.cuh"
#include "ops/cuda/expert_work.cuh"
#include "ops/cuda/unpack.cuh"
#include "ops/cuda/wgmma.cuh"

namespace di::ops::cuda {

/// The form for tiles of up to kMaxTokens rows. A tile's products are the narrowest of a few widths
/// that hold its rows; with more than five in one kernel the compiler runs short of registers and
/// makes the products wait for each other. FP8 has one: the shared expert's tiles are full.
template <int... kWidths_>
struct WideExperts {
  static constexpr int kWidths = sizeof...(kWidths_);
  static constexpr int kWidth[kWidths] = {kWidths_...};  ///< ascending
  static constexpr int kMaxTokens = kWidth[kWidths - 1];
  static constexpr int kThreads = kConsumers + 64 + kFinishers;
  static constexpr int kItemSlots = 4;
  /// Of a multiprocessor: where tiles are narrow, a second one unpacks as much again.
  static constexpr int kCtas = kMaxTokens <= 32 ? 2 : 1;
  static constexpr int kTokenSlotBytes =
      (kMaxTokens <= 128 ? 2 * kMaxTokens : 256) * 2 * kBlockCols;
  static constexpr int kTokenSlots = 4;
  static constexpr int kWeightSlots =  // as there is room
      kMaxTokens <= 32    ? 8
      : kMaxTokens <= 64  ? 16
      : kMaxTokens <= 128 ? 6
                          : 4;
  static constexpr int kSlotColumns = 128;  ///< that a slot of weights has in FP4
  // In all no more than the 168, or 80, that each thread begins with.
  static constexpr int kConsumerRegisters = kCtas == 2 ? 88 : 224;
  static constexpr int kProducerRegisters = kCtas == 2 ? 64 : 56;

  /// Column chunks of a tile of that width that share a slot of the token ring.
  static __device__ constexpr int chunks_of_slot(int width) { return width <= 128 ? 2 : 1; }

  /// Calls `work`.template operator()<i, kFp8>() for the i-th width, which holds `count` rows.
  template <int i = 0, class Work>
  static __device__ __forceinline__ void with_width(bool fp8, int count, const Work& work) {
    constexpr int kHere = kWidth[i];
    if constexpr (i == kWidths - 1) {
      if (fp8) {
        work.template operator()<i, true>();
      } else {
        work.template operator()<i, false>();
      }
    } else if (!fp8 && count <= kHere) {
      work.template operator()<i, false>();
    } else {
      with_width<i + 1>(fp8, count, work);
    }
  }
};
using Wide32 = WideExperts<16, 32>;
using Wide64 = WideExperts<32, 48, 64>;
using Wide128 = WideExperts<64, 80, 96, 128>;
using Wide256 = WideExperts<128, 144, 192, 256>;

/// How tiles of each width lie in the operands of the phases.
template <class Shape>
struct RowMaps {
  CUtensorMap x[Shape::kWidths], u[Shape::kWidths];
};

/// The shared memory of a CTA.
template <class Shape>
struct WideMemory {
  static constexpr int kCtas = Shape::kCtas;
  static constexpr int kItemSlots = Shape::kItemSlots;
  static constexpr int kWeightSlots = Shape::kWeightSlots;
  static constexpr int kSlotColumns = Shape::kSlotColumns;
  alignas(1024) uint8_t tokens[Shape::kTokenSlots][Shape::kTokenSlotBytes];
  alignas(128) uint8_t weights[Shape::kWeightSlots][weight_slot_bytes<Shape::kSlotColumns>()];
  alignas(128) uint8_t stage[2][Shape::kMaxTokens * kStagedRow];  ///< of each warpgroup's row tile
  WorkItem items[Shape::kItemSlots];
  uint64_t item_full[Shape::kItemSlots], item_empty[Shape::kItemSlots];
  uint64_t weights_full[Shape::kWeightSlots], weights_empty[Shape::kWeightSlots];
  uint64_t tokens_full[Shape::kTokenSlots], tokens_empty[Shape::kTokenSlots];
  uint64_t stage_full, stage_empty;

  /// One thread, before the CTA's first barrier.
  __device__ void init_barriers() {
    for (int i = 0; i < Shape::kItemSlots; ++i) {
      barrier_init(&item_full[i], 1);
      barrier_init(
          &item_empty[i], kConsumers + kFinishers + 1
      );  // and the thread that fetches rows
    }
    for (int i = 0; i < Shape::kWeightSlots; ++i) {
      barrier_init(&weights_full[i], 1);
      barrier_init(&weights_empty[i], kConsumers);
    }
    for (int i = 0; i < Shape::kTokenSlots; ++i) {
      barrier_init(&tokens_full[i], 1);
      barrier_init(&tokens_empty[i], kConsumers);
    }
    barrier_init(&stage_full, kConsumers);
    barrier_init(&stage_empty, kFinishers);
    barrier_init_fence();
  }
};
static_assert(sizeof(WideMemory<Wide32>) <= 113 * 1024);
static_assert(sizeof(WideMemory<Wide64>) <= 227 * 1024);
static_assert(sizeof(WideMemory<Wide128>) <= 227 * 1024);
static_assert(sizeof(WideMemory<Wide256>) <= 227 * 1024);

/// The thread that fetches each tile's rows.
template <class Shape>
class RowLoader {
 public:
  __device__ RowLoader(
      const ExpertArguments& op, const RowMaps<Shape>& maps, WideMemory<Shape>& memory
  )
      : op_(op), maps_(maps), memory_(memory) {}

  __device__ void run() {
    RingPlace<Shape::kItemSlots> items;
    while (true) {
      barrier_wait(&memory_.item_full[items.slot], items.parity);
      const WorkItem item = memory_.items[items.slot];
      barrier_arrive(&memory_.item_empty[items.slot]);
      items.advance();
      if (item.phase == 0) return;
      if (item.phase == 2) {
        wait_for_phase_1(op_, item.tile);
        fence_async_proxy_global();  // the activations were ordinary writes
      }
      Shape::with_width(is_fp8(op_, item.expert), item.count, Fetch{*this, item});
    }
  }

 private:
  struct Fetch {
    RowLoader& loader;
    const WorkItem& item;
    template <int i, bool>
    __device__ __forceinline__ void operator()() const {
      loader.template fetch<Shape::kWidth[i]>(
          item, item.phase == 1 ? &loader.maps_.x[i] : &loader.maps_.u[i]
      );
    }
  };

  /// What lies beyond the tile's rows comes along: sums do not mix rows, and theirs are not stored.
  template <int N>
  __device__ void fetch(const WorkItem& item, const CUtensorMap* map) {
    const int chunks = static_cast<int>(column_chunks(columns_of(op_, item.phase)));
    constexpr int kChunksOfSlot = Shape::chunks_of_slot(N);
    constexpr int kBytes = N * 2 * kBlockCols;
    for (int chunk = 0; chunk < chunks; chunk += kChunksOfSlot) {
      const uint32_t full = shared_address(&memory_.tokens_full[place_.slot]);
      const uint32_t slot = shared_address(memory_.tokens[place_.slot]);
      barrier_wait(&memory_.tokens_empty[place_.slot], place_.parity ^ 1);
      barrier_expect(full, kChunksOfSlot * kBytes);
#pragma unroll
      for (int c = 0; c < kChunksOfSlot; ++c)
        tensor_load(slot + c * kBytes, map, (chunk + c) * kBlockCols, 0, item.begin, full);
      place_.advance();
    }
  }

  const ExpertArguments& op_;
  const RowMaps<Shape>& maps_;
  WideMemory<Shape>& memory_;
  RingPlace<Shape::kTokenSlots> place_;
};

/// A consumer thread, across the items of its CTA.
template <class Shape>
class WideConsumer {
 public:
  __device__ WideConsumer(const ExpertArguments& op, WideMemory<Shape>& memory)
      : op_(op),
        memory_(memory),
        slots_(static_cast<uint32_t>(b_descriptor(shared_address(memory.tokens), 0))) {
    // Kept in a register: found anew for each product, it would hold up the tensor cores.
    asm volatile("" : "+r"(slots_));
  }

  __device__ __forceinline__ void run() {
    RingPlace<Shape::kItemSlots> items;
    while (true) {
      barrier_wait(&memory_.item_full[items.slot], items.parity);
      const WorkItem& item = memory_.items[items.slot];
      if (item.phase == 0) return;
      Shape::with_width(is_fp8(op_, item.expert), item.count, Work{*this, item});
      barrier_arrive(&memory_.item_empty[items.slot]);
      items.advance();
    }
  }

 private:
  struct Work {
    WideConsumer& consumer;
    const WorkItem& item;
    template <int i, bool kFp8>
    __device__ __forceinline__ void operator()() const {
      consumer.template work<Shape::kWidth[i], kFp8>(item);
    }
  };

  /// Products of 16 columns in a batch, by the registers that are left.
  static __device__ constexpr int steps(int width) {
    return Shape::kCtas == 1 && width <= 128 ? 4 : 2;
  }

  template <int N, bool kFp8>
  __device__ __forceinline__ void work(const WorkItem& item) {
    float d[N / 2];
    multiply<N, kFp8>(d, columns_of(op_, item.phase));
    barrier_wait(&memory_.stage_empty, stage_parity_ ^ 1);
    stage_results<N>(d, memory_.stage[ConsumerPlace::now().group]);
    barrier_arrive(&memory_.stage_full);
    stage_parity_ ^= 1;
  }

  /// d = weights · rows over `cols` columns. The fragments of one batch of products are unpacked
  /// while the products of the batch before it run.
  template <int N, bool kFp8>
  __device__ __forceinline__ void multiply(float (&d)[N / 2], int cols) {
    constexpr int kSteps = steps(N);
    constexpr int kChunksOfSlot = Shape::chunks_of_slot(N);
    const auto at = FragmentPlace<kFp8>::now(WeightSlot<kFp8, Shape::kSlotColumns>::kSecond);
    const int chunks = static_cast<int>(column_chunks(cols));  // an even number
    clear_sums(d);
    ExpertFragments<kFp8> fragments;
    uint32_t a[2][kSteps][4];
    for (int pair = 0; pair < chunks; pair += 2) {
#pragma unroll
      for (int batch = 0; batch < 8 / kSteps; ++batch) {
        const int second = batch * kSteps / 4;  // of the two chunks
        const int step = batch * kSteps % 4;
        const bool begins_slot = step == 0 && second % kChunksOfSlot == 0;
        uint32_t(&mine)[kSteps][4] = a[batch % 2];
        if (step == 0) read_weights<kFp8>(fragments, at, second);
#pragma unroll
        for (int k = 0; k < kSteps; ++k)
          fragments.get(step + k, mine[k]);
        if (step == 0 && (kFp8 || second == 1)) release_weights();
        if (begins_slot) {
          if (pair + second != 0) tokens_.advance();
          barrier_wait(&memory_.tokens_full[tokens_.slot], tokens_.parity);
        }
        const uint32_t tile = slots_ + (tokens_.slot * Shape::kTokenSlotBytes +
                                        second % kChunksOfSlot * N * 2 * kBlockCols) /
                                           16;
        multiply_batch<N>(d, mine, tile, step, pair == 0 && batch == 0);
        wgmma_wait<1>();
        if (begins_slot && pair + second != 0) release_tokens();
      }
    }
    tokens_.advance();
    wgmma_wait<0>();
    hold_registers(d);
    release_tokens();
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
      Fragments& fragments, const FragmentPlace<kFp8>& at, int second
  ) {
    const int block = kFp8 ? 0 : second;
    if (block == 0) barrier_wait(&memory_.weights_full[weights_.slot], weights_.parity);
    fragments.from(
        shared_address(memory_.weights[weights_.slot]) +
            block * WeightSlot<kFp8, Shape::kSlotColumns>::kBlock,
        at
    );
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

  /// Enqueues the products of one batch: columns from 16 · step of the rows at `tile`, the lower
  /// half of their descriptor.
  template <int N, int kSteps>
  static __device__ __forceinline__ void multiply_batch(
      float (&d)[N / 2], uint32_t (&a)[kSteps][4], uint32_t tile, int step, bool first
  ) {
    wgmma_fence();
    constexpr int kStep = 16 * 2 / 16;  // 16 columns, in pieces of 16 bytes
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const uint64_t rows = b_descriptor(0, 0) >> 32 << 32 | (tile + kStep * (step + k));
      wgmma_bf16<N>(d, a[k], rows, k != 0 || !first);
    }
    wgmma_commit();
  }

  const ExpertArguments& op_;
  WideMemory<Shape>& memory_;
  uint32_t slots_;  ///< lower half of the descriptor of the first row slot
  RingPlace<Shape::kWeightSlots> weights_;
  RingPlace<Shape::kTokenSlots> tokens_;
  int oldest_ = 0;  ///< row slot that is not given back yet
  uint32_t stage_parity_ = 0;
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
__global__ void __launch_bounds__(Shape::kThreads, Shape::kCtas) multiply_wide(
    const __grid_constant__ ExpertArguments op, const __grid_constant__ RowMaps<Shape> maps
) {
  extern __shared__ __align__(1024) uint8_t bytes[];
  auto& memory = *reinterpret_cast<WideMemory<Shape>*>(bytes);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) memory.init_barriers();
  __syncthreads();
  const bool hands_out_work = thread == kConsumers;
  if (!hands_out_work) {
    wait_for_previous_kernels();
    let_next_kernel_start();
  }
  __syncwarp();
  if (thread < kConsumers) {
    raise_registers<Shape::kConsumerRegisters>();
    WideConsumer<Shape>(op, memory).run();
  } else {
    lower_registers<Shape::kProducerRegisters>();
    const int other = thread - kConsumers;
    if (hands_out_work) hand_out_work(op, memory);
    if (other == 32) RowLoader<Shape>(op, maps, memory).run();
    if (other >= 64) WideFinisher<Shape, WideMemory<Shape>>(op, memory, other - 64).run();
  }
}

}  // namespace di::ops::cuda
