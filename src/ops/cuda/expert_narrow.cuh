// The expert kernel for few rows an expert, where reading the weights is the limit. Two CTAs share
// a multiprocessor, so that one streams while the other begins or ends a tile.
//
// Roles of a CTA. One loader thread hands out work and streams packed weights into a ring. Three
// converter warps expand the rows' Q8 codes to bf16 into a second ring. Eight consumer warps
// multiply, each 16 rows of fragments by a tile of 8, 16, 32 or 64 rows.
#pragma once

#include <cstdint>

#include "ops/cuda/expert_fragments.cuh"
#include "ops/cuda/expert_results.cuh"
#include "ops/cuda/expert_work.cuh"
#include "ops/cuda/unpack.cuh"
#include "ops/cuda/wgmma.cuh"

namespace di::ops::cuda {

struct NarrowExperts {
  static constexpr int kMaxTokens = 64;
  static constexpr int kCtas = 2;  ///< of a multiprocessor
  static constexpr int kConverterWarps = 3;
  static constexpr int kConverters = 32 * kConverterWarps;
  static constexpr int kThreads = kConsumers + kConverters + 32;
  static constexpr int kItemSlots = 4;
  static constexpr int kWeightSlots = 4;
  static constexpr int kSlotColumns = 256;  ///< that a slot of weights has in FP4
  static constexpr int kTokenSlots = 3;
  static constexpr int kTokenSlotBytes = kMaxTokens * 2 * kBlockCols;
  // In all no more than the 80 that each thread begins with.
  static constexpr int kConsumerRegisters = 88;
  static constexpr int kProducerRegisters = 64;

  /// Rows that the products of a tile are as wide as.
  static __device__ int width(int count) {
    return count <= 8 ? 8 : count <= 16 ? 16 : count <= 32 ? 32 : 64;
  }
  /// Column chunks of a tile of that width that share a slot of the token ring.
  static __device__ constexpr int chunks_of_slot(int width) { return kMaxTokens / width; }
};

/// The shared memory of a CTA.
struct NarrowMemory {
  using Shape = NarrowExperts;
  static constexpr int kCtas = Shape::kCtas;
  static constexpr int kItemSlots = Shape::kItemSlots;
  static constexpr int kWeightSlots = Shape::kWeightSlots;
  static constexpr int kSlotColumns = Shape::kSlotColumns;
  alignas(1024) uint8_t tokens[Shape::kTokenSlots][Shape::kTokenSlotBytes];
  alignas(128) uint8_t weights[Shape::kWeightSlots][weight_slot_bytes<Shape::kSlotColumns>()];
  alignas(16) uint8_t stage[Shape::kMaxTokens * kStagePitch];
  float weight[Shape::kItemSlots][Shape::kMaxTokens];
  int32_t source[Shape::kMaxTokens];  ///< row of the operand, for the converters alone
  WorkItem items[Shape::kItemSlots];
  uint64_t item_full[Shape::kItemSlots], item_empty[Shape::kItemSlots];
  uint64_t weights_full[Shape::kWeightSlots], weights_empty[Shape::kWeightSlots];
  uint64_t tokens_full[Shape::kTokenSlots], tokens_empty[Shape::kTokenSlots];

  /// One thread, before the CTA's first barrier.
  __device__ void init_barriers() {
    for (int i = 0; i < Shape::kItemSlots; ++i) {
      barrier_init(&item_full[i], 1);
      barrier_init(&item_empty[i], kConsumers);
    }
    for (int i = 0; i < Shape::kWeightSlots; ++i) {
      barrier_init(&weights_full[i], 1);
      barrier_init(&weights_empty[i], kConsumers);
    }
    for (int i = 0; i < Shape::kTokenSlots; ++i) {
      barrier_init(&tokens_full[i], Shape::kConverters);
      barrier_init(&tokens_empty[i], kConsumers);
    }
    barrier_init_fence();
  }
};

inline constexpr int kConverterBarrier = 2;

/// Brings rows of Q8 operands into the token ring. Each thread owns pieces of 16 codes of a slot;
/// the codes of the next slot are on their way while those of this one are expanded.
class Converter {
 public:
  __device__ Converter(const ExpertArguments& op, NarrowMemory& memory, int thread)
      : op_(op), memory_(memory), thread_(thread) {}

  __device__ void run() {
    RingPlace<Shape::kItemSlots> items;
    while (true) {
      barrier_wait(&memory_.item_full[items.slot], items.parity);
      const WorkItem item = memory_.items[items.slot];
      if (item.phase == 0) return;
      list_tokens(item, items.slot);
      convert(item);
      items.advance();
    }
  }

 private:
  using Shape = NarrowExperts;
  static constexpr int kPieces = Shape::kMaxTokens * 4;  // of a slot
  static constexpr int kMine = (kPieces + Shape::kConverters - 1) / Shape::kConverters;

  /// Writes the tables of the tile's rows, and waits for the operands of phase 2.
  __device__ void list_tokens(const WorkItem& item, int slot) {
    named_barrier(kConverterBarrier, Shape::kConverters);  // nobody reads `source` any more
    for (int t = thread_; t < item.count; t += Shape::kConverters) {
      const int position = item.begin + t;
      memory_.weight[slot][t] = op_.lists.weight[position];
      memory_.source[t] = item.phase == 1 ? op_.lists.target[position] / (op_.k + 1) : position;
    }
    if (item.phase == 2 && thread_ == 0) wait_for_phase_1(op_, item.tile);
    named_barrier(kConverterBarrier, Shape::kConverters);
  }

  __device__ void convert(const WorkItem& item) {
    codes_base_ = item.phase == 1 ? op_.x_codes : op_.u_codes;
    scales_base_ = item.phase == 1 ? op_.x_scales : op_.u_scales;
    cols_ = columns_of(op_, item.phase);
    count_ = item.count;
    width_ = Shape::width(item.count);
    chunks_of_slot_ = Shape::chunks_of_slot(width_);
    reciprocal_ = (65536 + count_ - 1) / count_;
    const int chunks = static_cast<int>(column_chunks(cols_));
#pragma unroll
    for (int i = 0; i < kMine; ++i)
      load(i, 0);
    for (int chunk = 0; chunk < chunks; chunk += chunks_of_slot_) {
      barrier_wait(&memory_.tokens_empty[place_.slot], place_.parity ^ 1);
#pragma unroll
      for (int i = 0; i < kMine; ++i) {
        store(i, chunk);
        load(i, chunk + chunks_of_slot_);
      }
      barrier_arrive(&memory_.tokens_full[place_.slot]);
      place_.advance();
    }
  }

  /// This thread's i-th piece of a slot: 16 columns of one row in one chunk. Pieces of the rows
  /// that there are come first, so that warps without any do nothing.
  struct Piece {
    int token, chunk, quarter;
    bool used;
  };
  __device__ Piece piece(int i) const {
    const int number = thread_ / 4 + i * (Shape::kConverters / 4);
    const int chunk = number * reciprocal_ >> 16;  // number / count, exact below 2^8
    return {number - chunk * count_, chunk, thread_ % 4, chunk < chunks_of_slot_};
  }

  __device__ void load(int i, int first_chunk) {
    const Piece p = piece(i);
    const int col = (first_chunk + p.chunk) * kBlockCols + 16 * p.quarter;
    if (!p.used || col >= cols_) return;
    const uint32_t at = static_cast<uint32_t>(memory_.source[p.token]) * cols_ + col;
    codes_[i] = __ldcg(reinterpret_cast<const uint4*>(codes_base_ + at));
    scales_[i] = __ldcg(scales_base_ + at / 32);
  }

  __device__ void store(int i, int first_chunk) {
    const Piece p = piece(i);
    const int col = (first_chunk + p.chunk) * kBlockCols + 16 * p.quarter;
    if (!p.used) return;
    uint4 x[2] = {};  // columns beyond the operand are zeros
    if (col < cols_) expand_activations(codes_[i], scales_[i], x);
    uint8_t* tile = memory_.tokens[place_.slot] + p.chunk * width_ * 2 * kBlockCols;
    *reinterpret_cast<uint4*>(tile + swizzled_offset(p.token, 2 * p.quarter)) = x[0];
    *reinterpret_cast<uint4*>(tile + swizzled_offset(p.token, 2 * p.quarter + 1)) = x[1];
  }

  const ExpertArguments& op_;
  NarrowMemory& memory_;
  const int thread_;
  RingPlace<Shape::kTokenSlots> place_;
  const uint8_t* codes_base_ = nullptr;
  const uint8_t* scales_base_ = nullptr;
  int cols_ = 0;
  int count_ = 0;
  int width_ = 0;
  int chunks_of_slot_ = 0;
  int reciprocal_ = 0;  ///< of the number of rows, times 2^16, rounded up
  uint4 codes_[kMine];
  uint8_t scales_[kMine];
};

/// Stores activations of phase 1 in Q8.
struct Q8Activations {
  const ExpertArguments& op;

  __device__ void operator()(int64_t position, int channel, const Q8Vector& q8) const {
    const int64_t index = position * op.inner + channel;
    *reinterpret_cast<uint2*>(op.u_codes + index) = q8.codes;
    if (channel % 32 == 0) op.u_scales[index / 32] = q8.scale;
  }
};

/// A consumer thread, across the items of its CTA.
class NarrowConsumer {
 public:
  __device__ NarrowConsumer(const ExpertArguments& op, NarrowMemory& memory)
      : op_(op), memory_(memory) {}

  __device__ __forceinline__ void run() {
    RingPlace<Shape::kItemSlots> items;
    while (true) {
      barrier_wait(&memory_.item_full[items.slot], items.parity);
      const WorkItem item = memory_.items[items.slot];
      if (item.phase == 0) return;
      slot_ = items.slot;
      switch (Shape::width(item.count)) {
        case 8: work<8>(item); break;
        case 16: work<16>(item); break;
        case 32: work<32>(item); break;
        default: work<64>(item); break;
      }
      barrier_arrive(&memory_.item_empty[items.slot]);
      items.advance();
    }
  }

 private:
  using Shape = NarrowExperts;

  template <int N>
  __device__ __forceinline__ void work(const WorkItem& item) {
    float d[N / 2];
    const int cols = columns_of(op_, item.phase);
    if (is_fp8(op_, item.expert)) {
      multiply<N, true>(d, cols);
    } else {
      multiply<N, false>(d, cols);
    }
    if (item.phase == 1) {
      const Q8Activations put{op_};
      finish_gate_up<N>(op_, item, d, memory_.weight[slot_], memory_.stage, put);
      consumers_meet();
      if (threadIdx.x == 0) announce_unit(op_, item.tile);
    } else {
      finish_down<N>(op_, item, d);
    }
  }

  /// d = weights · tokens over `cols` columns.
  template <int N, bool kFp8>
  __device__ __forceinline__ void multiply(float (&d)[N / 2], int cols) {
    using Slot = WeightSlot<kFp8, Shape::kSlotColumns>;
    constexpr int kPerTokenSlot = Shape::chunks_of_slot(N);
    const auto at = FragmentPlace<kFp8>::now(Slot::kSecond);
    const int lane = ConsumerPlace::now().thread % 32;
    const uint32_t rows[2] = {
        static_cast<uint32_t>(swizzled_offset(lane % 8, lane / 8)),
        static_cast<uint32_t>(swizzled_offset(lane % 8, 4 + lane / 8))};
    const int chunks = static_cast<int>(column_chunks(cols));  // an even number
#pragma unroll
    for (float& sum : d)
      sum = 0;
    for (int first = 0; first < chunks; first += Slot::kChunks) {
      barrier_wait(&memory_.weights_full[weights_.slot], weights_.parity);
      const uint32_t slot = shared_address(memory_.weights[weights_.slot]);
#pragma unroll
      for (int i = 0; i < Slot::kChunks; ++i) {
        if (i != 0 && i % 2 == 0 && first + i == chunks) break;
        ExpertFragments<kFp8> fragments;
        fragments.from(slot + i * Slot::kBlock, at);
        // Slots of either ring hold a power of two chunks.
        const int part =
            kPerTokenSlot > Slot::kChunks ? first % kPerTokenSlot + i : i % kPerTokenSlot;
        if (kPerTokenSlot > Slot::kChunks && i != 0 ? false : part == 0)
          barrier_wait(&memory_.tokens_full[tokens_.slot], tokens_.parity);
        const uint32_t tile =
            shared_address(memory_.tokens[tokens_.slot]) + part * N * 2 * kBlockCols;
        multiply_chunk<N>(d, fragments, {tile + rows[0], tile + rows[1]});
        const bool ends_slot = part == kPerTokenSlot - 1 || first + i + 1 == chunks;
        if (kPerTokenSlot == 1 || (i % 2 == 1 && ends_slot)) release(memory_.tokens_empty, tokens_);
      }
      release(memory_.weights_empty, weights_);
    }
  }

  /// d += the products of one chunk. `rows` is where a lane reads its row of each half's columns.
  template <int N, class Fragments>
  static __device__ __forceinline__ void multiply_chunk(
      float (&d)[N / 2], const Fragments& fragments, const uint32_t (&rows)[2]
  ) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t a[2][4];
      fragments.get(2 * half, a[0]);
      fragments.get(2 * half + 1, a[1]);
#pragma unroll
      for (int j = 0; j < N / 8; ++j) {
        uint32_t b[4];
        load_matrices(rows[half] + 8 * j * 2 * kBlockCols, b);
        mma_bf16(d + 4 * j, a[0], b[0], b[1]);
        mma_bf16(d + 4 * j, a[1], b[2], b[3]);
      }
    }
  }

  /// Gives back the slot where `place` stands.
  template <int Slots>
  static __device__ __forceinline__ void release(uint64_t* empty, RingPlace<Slots>& place) {
    barrier_arrive(&empty[place.slot]);
    place.advance();
  }

  const ExpertArguments& op_;
  NarrowMemory& memory_;
  int slot_ = 0;  ///< of the current item
  RingPlace<Shape::kWeightSlots> weights_;
  RingPlace<Shape::kTokenSlots> tokens_;
};

__global__ void __launch_bounds__(NarrowExperts::kThreads, NarrowExperts::kCtas)
    multiply_narrow(const __grid_constant__ ExpertArguments op) {
  extern __shared__ __align__(1024) uint8_t bytes[];
  auto& memory = *reinterpret_cast<NarrowMemory*>(bytes);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) memory.init_barriers();
  __syncthreads();
  const bool hands_out_work = thread == kConsumers + NarrowExperts::kConverters;
  if (!hands_out_work) {
    wait_for_previous_kernels();
    let_next_kernel_start();
  }
  __syncwarp();
  if (thread < kConsumers) {
    raise_registers<NarrowExperts::kConsumerRegisters>();
    NarrowConsumer(op, memory).run();
  } else {
    lower_registers<NarrowExperts::kProducerRegisters>();
    const int producer = thread - kConsumers;
    if (producer < NarrowExperts::kConverters) {
      Converter(op, memory, producer).run();
    } else if (hands_out_work) {
      hand_out_work(op, memory);
    }
  }
}

}  // namespace di::ops::cuda
