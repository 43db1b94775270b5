// The producing roles of the expert kernel: the loader, which hands out work and streams weights,
// and the converters, which bring a tile's tokens into shared memory as bf16.
#pragma once

#include <cstdint>

#include "ops/cuda/expert_work.cuh"
#include "ops/cuda/unpack.cuh"
#include "ops/cuda/wgmma.cuh"

namespace di::ops::cuda {

/// Units of phase 1 and of phase 2 for each tile of tokens.
__device__ inline int gate_up_units(const ExpertArguments& op) {
  return static_cast<int>(row_tiles(op.inner));
}
__device__ inline int down_units(const ExpertArguments& op) {
  return static_cast<int>(row_tiles(op.hidden) + 1) / 2;
}

/// Takes the next item: all of phase 1 before phase 2, the units of a tile one after the other, so
/// that tiles of one expert meet its weights in the cache.
__device__ inline WorkItem next_item(const ExpertArguments& op, int num_tiles) {
  int number = atomicAdd(op.lists.counters, 1);
  int units = gate_up_units(op);
  int phase = 1;
  if (number >= num_tiles * units) {
    number -= num_tiles * units;
    units = down_units(op);
    phase = 2;
    if (number >= num_tiles * units) return {};
  }
  const int index = number / units;
  const TokenTile tile = op.lists.tiles[index];
  return {phase, tile.expert, number % units, index, tile.begin, tile.count, tile.tiles_of_expert};
}

/// The two row tiles of an item's weights, as streams of blocks.
struct WeightStreams {
  const uint8_t* first;
  const uint8_t* second;
};
__device__ inline const uint8_t* matrix_of(
    const ExpertMatrix& m, const WorkItem& item, int experts
) {
  return item.expert == experts ? m.shared : m.routed + item.expert * m.stride;
}
template <bool kFp8>
__device__ WeightStreams streams_of(const ExpertArguments& op, const WorkItem& item) {
  constexpr int64_t kBlock = WeightSlot<kFp8>::kBlock;
  if (item.phase == 1) {
    const int64_t offset = item.unit * column_chunks(op.hidden) * kBlock;
    return {
        matrix_of(op.gate, item, op.experts) + offset, matrix_of(op.up, item, op.experts) + offset};
  }
  const uint8_t* down = matrix_of(op.down, item, op.experts);
  const int64_t row_tile = column_chunks(op.inner) * kBlock;
  const int64_t last = row_tiles(op.hidden) - 1;
  // Without a second row tile the first one comes twice; its results are not stored.
  return {
      down + 2 * item.unit * row_tile,
      down + (2 * item.unit < last ? 2 * item.unit + 1 : last) * row_tile};
}

/// One thread: streams the weights of an item through the ring.
template <class Shape, bool kFp8>
__device__ void stream_weights(
    const ExpertArguments& op,
    const WorkItem& item,
    ExpertMemory<Shape>& memory,
    RingPlace<Shape::kWeightSlots>& place
) {
  using Slot = WeightSlot<kFp8>;
  const WeightStreams streams = streams_of<kFp8>(op, item);
  const int chunks = static_cast<int>(column_chunks(item.phase == 1 ? op.hidden : op.inner));
  const bool read_once = item.tiles_of_expert == 1;
  for (int chunk = 0; chunk < chunks; chunk += Slot::kChunks) {
    const int bytes = min(Slot::kChunks, chunks - chunk) * Slot::kBlock;
    const int64_t offset = int64_t{chunk} * Slot::kBlock;
    uint8_t* slot = memory.weights[place.slot];
    uint64_t* full = &memory.weights_full[place.slot];
    barrier_wait(&memory.weights_empty[place.slot], place.parity ^ 1);
    barrier_expect(full, 2 * bytes);
    if (read_once) {
      bulk_load_streaming(slot, streams.first + offset, bytes, full);
      bulk_load_streaming(slot + Slot::kSecond, streams.second + offset, bytes, full);
    } else {
      bulk_load(slot, streams.first + offset, bytes, full);
      bulk_load(slot + Slot::kSecond, streams.second + offset, bytes, full);
    }
    place.advance();
  }
}

/// The loader: one thread.
template <class Shape>
__device__ void run_loader(const ExpertArguments& op, ExpertMemory<Shape>& memory) {
  RingPlace<kItemSlots> items;
  RingPlace<Shape::kWeightSlots> weights;
  const int num_tiles = *op.lists.num_tiles;
  while (true) {
    barrier_wait(&memory.item_empty[items.slot], items.parity ^ 1);
    const WorkItem item = next_item(op, num_tiles);
    memory.items[items.slot] = item;
    barrier_arrive(&memory.item_full[items.slot]);
    items.advance();
    if (item.phase == 0) return;
    if (item.expert == op.experts ? op.shared_fp8 : op.routed_fp8) {
      stream_weights<Shape, true>(op, item, memory, weights);
    } else {
      stream_weights<Shape, false>(op, item, memory, weights);
    }
  }
}

/// Loads that must see what other CTAs of this launch wrote.
__device__ inline int load_acquire(const int32_t* p) {
  int value = 0;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}

inline constexpr int kConverterBarrier = 1;

/// Brings tokens of Q8 operands into the token ring. Each thread owns pieces of 16 codes of a slot;
/// the codes of the next slot are on their way while those of this one are expanded.
template <class Shape>
class Converter {
 public:
  __device__ Converter(const ExpertArguments& op, ExpertMemory<Shape>& memory, int thread)
      : op_(op), memory_(memory), thread_(thread) {}

  __device__ void run() {
    RingPlace<kItemSlots> items;
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
  static constexpr int kPieces = Shape::kMaxTokens * 4;  // of a slot
  static constexpr int kMine = (kPieces + kConverters - 1) / kConverters;

  /// Writes the tables of the tile's tokens, and waits for the rows of phase 2.
  __device__ void list_tokens(const WorkItem& item, int slot) {
    named_barrier(kConverterBarrier, kConverters);  // nobody reads `source` any more
    for (int t = thread_; t < item.count; t += kConverters) {
      const int target = op_.lists.target[item.begin + t];
      memory_.target[slot][t] = target;
      memory_.weight[slot][t] = op_.lists.weight[item.begin + t];
      memory_.source[t] = item.phase == 1 ? target / (op_.k + 1) : item.begin + t;
    }
    if (item.phase == 2 && thread_ == 0) {
      const int32_t* ready = op_.lists.counters + 1 + item.tile;
      const int units = static_cast<int>(row_tiles(op_.inner));
      while (load_acquire(ready) < units)
        __nanosleep(100);
    }
    named_barrier(kConverterBarrier, kConverters);
  }

  __device__ void convert(const WorkItem& item) {
    codes_base_ = item.phase == 1 ? op_.x_codes : op_.u_codes;
    scales_base_ = item.phase == 1 ? op_.x_scales : op_.u_scales;
    cols_ = item.phase == 1 ? op_.hidden : op_.inner;
    count_ = item.count;
    width_ = tile_width<Shape>(item.count);
    width_shift_ = 31 - __clz(width_);  // widths below the widest are powers of two
    chunks_of_slot_ = chunks_of_slot<Shape>(width_);
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
      fence_async_proxy();
      __syncwarp();
      if (thread_ % 32 == 0) barrier_arrive(&memory_.tokens_full[place_.slot]);
      place_.advance();
    }
  }

  /// This thread's i-th piece of a slot: 16 columns of one token in one chunk.
  struct Piece {
    int token, chunk, quarter;
    bool used;
  };
  __device__ Piece piece(int i) const {
    const int row = thread_ / 4 + i * (kConverters / 4);
    if constexpr (Shape::kWide) return {row, 0, thread_ % 4, row < count_};
    const int chunk = row >> width_shift_;
    const int token = row - (chunk << width_shift_);
    return {token, chunk, thread_ % 4, token < count_ && chunk < chunks_of_slot_};
  }

  __device__ void load(int i, int first_chunk) {
    const Piece p = piece(i);
    const int col = (first_chunk + p.chunk) * kBlockCols + 16 * p.quarter;
    if (!p.used || col >= cols_) return;
    const int64_t row = memory_.source[p.token];
    codes_[i] = __ldcg(reinterpret_cast<const uint4*>(codes_base_ + row * cols_ + col));
    scales_[i] = __ldcg(scales_base_ + (row * cols_ + col) / 32);
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
  ExpertMemory<Shape>& memory_;
  const int thread_;
  RingPlace<Shape::kTokenSlots> place_;
  const uint8_t* codes_base_ = nullptr;
  const uint8_t* scales_base_ = nullptr;
  int cols_ = 0;
  int count_ = 0;
  int width_ = 0;
  int width_shift_ = 0;
  int chunks_of_slot_ = 0;
  uint4 codes_[kMine];
  uint8_t scales_[kMine];
};

}  // namespace di::ops::cuda
