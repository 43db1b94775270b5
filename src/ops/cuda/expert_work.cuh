// What both forms of the expert kernel share: operands, work items, and where their weights lie.
//
// Phase 1 multiplies rows by gate and up of 64 inner channels and leaves the gated activation;
// phase 2 multiplies that by 128 rows of down. A work item is one such unit for one tile of rows.
// Two warpgroups multiply, each 64 rows of fragments (expert_fragments.cuh).
#pragma once

#include <cstdint>

#include "ops/cuda/expert_lists.h"
#include "ops/cuda/expert_matrix.h"
#include "ops/cuda/packing.h"
#include "ops/cuda/pipeline.cuh"

namespace di::ops::cuda {

/// Operands of the expert kernel, all in device memory.
struct ExpertArguments {
  ExpertLists lists;
  int shared_tiles;         // the first of the tiles, of the shared expert
  const uint8_t* x_codes;   // [rows, hidden]
  const uint8_t* x_scales;  // [rows, hidden / 32]
  uint8_t* u_codes;         // [positions, inner]: the activation in Q8, in the narrow form
  uint8_t* u_scales;        // [positions, inner / 32]
  uint8_t* u_expanded;      // [positions, inner] bf16: its values times 2^-16, in the wide form
  uint16_t* parts;          // [positions, hidden] bf16; in the wide form the rows until then
  ExpertMatrix gate, up, down;
  int experts;
  int hidden;
  int inner;
  int k;
  bool routed_fp8;
  bool shared_fp8;
  float limit;
};

struct WorkItem {
  int32_t phase;  ///< 1 or 2; 0: there is no more work
  int32_t expert;
  int32_t unit;  ///< of 64 inner channels or 128 hidden channels
  int32_t tile;  ///< index of the tile of rows
  int32_t begin;
  int32_t count;
  int32_t tiles_of_expert;
};

/// Units of phase 1 and of phase 2 for each tile of rows.
__device__ inline int gate_up_units(const ExpertArguments& op) {
  return static_cast<int>(row_tiles(op.inner));
}
__device__ inline int down_units(const ExpertArguments& op) {
  return static_cast<int>(row_tiles(op.hidden) + 1) / 2;
}

/// Hands out work items, to one thread of each CTA. There are four queues, the shared expert's
/// units and the others' in each phase, the units of a tile one after the other, so that tiles of
/// one expert meet its weights in the cache. No unit of phase 2 is handed out before all of phase 1
/// are. A queue's first numbers belong to its first CTAs, which need not ask for them; all CTAs of
/// the grid fit the device together, so that no wait is for one that never begins.
class WorkQueues {
 public:
  /// The first `heavy` CTAs take the shared expert's units first in each phase, the others last.
  __device__ WorkQueues(const ExpertArguments& op, int heavy)
      : op_(op),
        heavy_(heavy),
        shared_first_(static_cast<int>(blockIdx.x) < heavy),
        number_(static_cast<int>(blockIdx.x) - (shared_first_ ? 0 : heavy)) {}

  /// The CTA's first unit, as far as its weights go, where that is known without the lists.
  __device__ WorkItem first_weights() const {
    if (!shared_first_ || number_ >= op_.shared_tiles * units_of(1)) return {};
    return item(1, number_, tile_of(1, true, number_), {op_.experts, 0, 0, op_.shared_tiles});
  }

  /// Behind the lists: what else is known of the first unit.
  __device__ void begin() {
    const int index = tile_of(1, shared_first_, number_);
    const TokenTile tile = index < op_.lists.max_tiles ? op_.lists.tiles[index] : TokenTile{};
    num_tiles_ = *op_.lists.num_tiles;
    if (number_ < count_of(1, shared_first_)) first_ = item(1, number_, index, tile);
  }

  __device__ WorkItem next() {
    if (first_.phase != 0) {
      const WorkItem first = first_;
      first_.phase = 0;
      return first;
    }
    for (; stage_ < kWorkQueues; ++stage_) {
      const int phase = 1 + stage_ / 2;
      const bool shared = (stage_ % 2 == 0) == shared_first_;
      const int given = phase == 2 ? 0 : shared ? heavy_ : static_cast<int>(gridDim.x) - heavy_;
      const int number =
          given + atomicAdd(op_.lists.counters + 2 * (phase - 1) + (shared ? 0 : 1), 1);
      if (number >= count_of(phase, shared)) continue;
      const int index = tile_of(phase, shared, number);
      return item(phase, number, index, op_.lists.tiles[index]);
    }
    return {};
  }

 private:
  __device__ int units_of(int phase) const {
    return phase == 1 ? gate_up_units(op_) : down_units(op_);
  }
  __device__ int count_of(int phase, bool shared) const {
    return units_of(phase) * (shared ? op_.shared_tiles : num_tiles_ - op_.shared_tiles);
  }
  __device__ int tile_of(int phase, bool shared, int number) const {
    return number / units_of(phase) + (shared ? 0 : op_.shared_tiles);
  }
  __device__ WorkItem item(int phase, int number, int index, const TokenTile& tile) const {
    const int unit = number % units_of(phase);
    return {phase, tile.expert, unit, index, tile.begin, tile.count, tile.tiles_of_expert};
  }

  const ExpertArguments& op_;
  const int heavy_;
  const bool shared_first_;
  const int number_;  ///< of the first unit in its queue
  int num_tiles_ = 0;
  int stage_ = 0;
  WorkItem first_{};
};

/// Columns that a phase sums over.
__device__ inline int columns_of(const ExpertArguments& op, int phase) {
  return phase == 1 ? op.hidden : op.inner;
}

/// Whether the expert's weights are FP8.
__device__ inline bool is_fp8(const ExpertArguments& op, int expert) {
  return expert == op.experts ? op.shared_fp8 : op.routed_fp8;
}

/// The counter of finished units of phase 1 of a tile.
__device__ inline int32_t* ready_counter(const ExpertArguments& op, int tile) {
  return op.lists.counters + kWorkQueues + tile;
}
/// Returns when phase 1 of a tile is complete; what other CTAs wrote then is visible to the caller.
__device__ inline void wait_for_phase_1(const ExpertArguments& op, int tile) {
  const int units = gate_up_units(op);
  int finished = 0;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                 : "=r"(finished)
                 : "l"(ready_counter(op, tile))
                 : "memory");
  } while (finished < units);
}

inline constexpr int kConsumerWarps = 8;
inline constexpr int kConsumers = 32 * kConsumerWarps;

/// A slot of a weight ring: two row tiles, as many blocks of each as `kColumns` columns are in FP4,
/// or half as many in FP8.
template <bool kFp8, int kColumns>
struct WeightSlot {
  static constexpr int kChunks = kColumns / kBlockCols / (kFp8 ? 2 : 1);
  static constexpr int kBlock = block_bytes(kFp8 ? WeightFormat::kFp8 : WeightFormat::kFp4);
  static constexpr int kSecond = kChunks * kBlock;  ///< offset of the second row tile
};
template <int kColumns>
constexpr int weight_slot_bytes() {
  static_assert(WeightSlot<true, kColumns>::kSecond <= WeightSlot<false, kColumns>::kSecond);
  return 2 * WeightSlot<false, kColumns>::kSecond;
}

/// The two row tiles of an item's weights, as streams of blocks: gate and up, or two of down.
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
  constexpr int64_t kBlock = block_bytes(kFp8 ? WeightFormat::kFp8 : WeightFormat::kFp4);
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

/// One thread: streams the weights of an item through the ring of `memory`, beginning with slot
/// number `first`, up to `last` if there are as many.
template <bool kFp8, class Memory, class Place>
__device__ void stream_weights(
    const ExpertArguments& op,
    const WorkItem& item,
    Memory& memory,
    Place& place,
    int first,
    int last
) {
  using Slot = WeightSlot<kFp8, Memory::kSlotColumns>;
  const WeightStreams streams = streams_of<kFp8>(op, item);
  const int chunks = static_cast<int>(column_chunks(columns_of(op, item.phase)));
  const bool read_once = item.tiles_of_expert == 1;
  for (int number = first; number < last && number * Slot::kChunks < chunks; ++number) {
    const int chunk = number * Slot::kChunks;
    const int64_t offset = int64_t{chunk} * Slot::kBlock;
    const int bytes = min(Slot::kChunks, chunks - chunk) * Slot::kBlock;
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

template <class Memory, class Place>
__device__ void stream_weights(
    const ExpertArguments& op,
    const WorkItem& item,
    Memory& memory,
    Place& place,
    int first,
    int last
) {
  if (is_fp8(op, item.expert)) {
    stream_weights<true>(op, item, memory, place, first, last);
  } else {
    stream_weights<false>(op, item, memory, place, first, last);
  }
}

/// One thread of each CTA: takes work from the queues, tells the CTA by way of the item ring of
/// `memory`, and streams the weights. With two CTAs on a multiprocessor, one begins with the shared
/// expert's units and the other with the lighter ones. This thread waits for earlier kernels here:
/// the shared expert's first weights, which no kernel writes, are on their way before.
template <class Memory>
__device__ void hand_out_work(const ExpertArguments& op, Memory& memory) {
  RingPlace<Memory::kItemSlots> items;
  RingPlace<Memory::kWeightSlots> weights;
  constexpr int kAll = 1 << 30;
  const int heavy = Memory::kCtas == 1 ? gridDim.x : op.shared_tiles * gate_up_units(op);
  WorkQueues queues(op, min(heavy, static_cast<int>(gridDim.x) / Memory::kCtas));
  const WorkItem early = queues.first_weights();
  int started = 0;  // slots of the first item
  if (early.phase != 0) {
    started = Memory::kWeightSlots;
    stream_weights(op, early, memory, weights, 0, started);
  }
  wait_for_previous_kernels();
  queues.begin();
  while (true) {
    barrier_wait(&memory.item_empty[items.slot], items.parity ^ 1);
    const WorkItem item = queues.next();
    memory.items[items.slot] = item;
    barrier_arrive(&memory.item_full[items.slot]);
    items.advance();
    if (item.phase == 0) return;
    stream_weights(op, item, memory, weights, started, kAll);
    started = 0;
  }
}

}  // namespace di::ops::cuda
