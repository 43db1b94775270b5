// What the parts of the linear kernel share: how a product is cut into units of work, and the
// numbers and the shared memory of one kernel. The kernel: linear_kernel.cuh.
#pragma once

#include "ops/cuda/linear_args.h"
#include "ops/cuda/packing.h"
#include "ops/cuda/pipeline.cuh"
#include "tensor/number_formats.h"

namespace di::ops::cuda {

/// One unit of work: a row tile for each of `consumers` warpgroups, N tokens, columns of one piece.
struct LinearUnit {
  int group, first_tile, token, piece, first_chunk, last_chunk;

  __device__ LinearUnit(const LinearArgs& args, int index, int consumers) {
    const int tile_sets = args.group_tiles / consumers;
    piece = index % args.pieces;
    index /= args.pieces;
    const int sets = args.groups * tile_sets;
    const int block = index / (sets * args.token_block);
    index -= block * sets * args.token_block;
    const int in_block = min(args.token_block, args.token_tiles - block * args.token_block);
    token = block * args.token_block + index % in_block;
    const int set = index / in_block;
    group = set / tile_sets;
    first_tile = set % tile_sets * consumers;
    const int piece_chunks = args.piece_slices * args.slice_chunks;
    first_chunk = piece * piece_chunks;
    last_chunk = min(args.chunks, first_chunk + piece_chunks);
  }
};

/// Where a piece's sums of a tile lie: N / 8 times 128 float4, [8 tokens][thread], behind those of
/// the tile's other pieces.
template <class T>
__device__ float4* partial_place(const LinearArgs& args, const LinearUnit& unit, int consumer) {
  const int tile = unit.group * args.group_tiles + unit.first_tile + consumer;
  const int64_t tiles = static_cast<int64_t>(args.groups) * args.group_tiles;
  const int64_t place = (unit.token * tiles + tile) * args.pieces + unit.piece;
  return args.partial + place * (T::N / 8 * 128);
}

/// The row tile of the packed form that a unit's warpgroup works on; -1 when there is none left.
__device__ inline int unit_tile(const LinearArgs& args, const LinearUnit& unit, int consumer) {
  const int first_row = unit.group * args.group_rows;
  const int tile = args.first_tile + first_row / kBlockRows + unit.first_tile + consumer;
  return tile * kBlockRows < min(args.last_row, first_row + args.group_rows) ? tile : -1;
}

/// Walks over all chunks of this CTA's units as one sequence.
struct ChunkCursor {
  const LinearArgs& args;
  int tiles;  ///< row tiles of a unit
  int index;  ///< of the unit
  LinearUnit unit;
  int chunk;

  __device__ ChunkCursor(const LinearArgs& all, int unit_tiles, int skip)
      : args(all),
        tiles(unit_tiles),
        index(static_cast<int>(blockIdx.x)),
        unit(all, index, unit_tiles),
        chunk(unit.first_chunk) {
    advance(skip);
  }
  __device__ bool done() const { return index >= args.units; }
  __device__ void advance(int count) {
    chunk += count;
    while (!done() && chunk >= unit.last_chunk) {
      const int excess = chunk - unit.last_chunk;
      index += static_cast<int>(gridDim.x);
      if (done()) return;
      unit = LinearUnit(args, index, tiles);
      chunk = unit.first_chunk + excess;
    }
  }
};

/// How the slices of a unit are added: it has one only; those of one part in registers; the parts'
/// sums in shared memory.
enum class SliceSums { kOne, kPart, kParts };

/// The numbers of one instantiation.
template <
    WeightFormat kFormat,
    int kN,
    int kConsumerGroups,
    bool kQ8Rows = false,
    SliceSums kSums = SliceSums::kOne>
struct LinearTraits {
  static constexpr WeightFormat format = kFormat;
  static constexpr int N = kN;
  static constexpr int consumers = kConsumerGroups;
  static constexpr bool q8 = kQ8Rows;
  static constexpr SliceSums sums = kSums;
  // A warpgroup for activations (one thread of it, when they come by tensor loads) and one warp
  // that asks for weights, which is a warp of its own when the whole group expands codes.
  static constexpr int threads = (consumers + 1) * 128 + (q8 ? 32 : 0);
  static constexpr int weights_warp = (consumers + 1) * 4 - (q8 ? 0 : 1);
  static constexpr int stage_bytes = 2 * block_bytes(format);  // 128 columns of one row tile
  static constexpr int tile_bytes = N * 128;                   // 64 columns of N tokens
  static constexpr int x_chunks = N <= 64 ? 2 : 1;             // such tiles in a slot
  static constexpr int x_bytes = x_chunks * tile_bytes;
  static constexpr int x_stages = N <= 32 ? 6 : N == 64 ? 4 : N <= 128 ? 6 : N < 256 ? 4 : 3;
  // Many tokens: the results of a warpgroup are put together before they leave, where the sums of
  // parts lay.
  static constexpr int y_bytes = (sums == SliceSums::kParts ? 4 : N >= 96 ? 2 : 0) * N * kBlockRows;
  static constexpr int kSharedBytes = 225 * 1024;
  static constexpr int w_stages_fit =
      (kSharedBytes - x_stages * x_bytes - consumers * y_bytes) / (consumers * stage_bytes);
  static constexpr int w_stages = w_stages_fit < 12 ? w_stages_fit : 12;
  static_assert(w_stages >= 2);
  // Warpgroups with more tokens take registers from the one that brings activations.
  static constexpr bool moves_registers = consumers == 2;
  static constexpr int steps = N <= 64 ? 4 : 2;  // products of 16 columns in a batch
  static constexpr int shared_bytes =
      1024 + x_stages * x_bytes + consumers * (y_bytes + w_stages * stage_bytes) + 1024;
  // Threads of the activation warpgroup that share a slot; the rest takes other slots.
  static constexpr int row_pieces = 4 * x_chunks;  // of 16 codes, in a row of a slot
  static constexpr int slot_threads = row_pieces * N < 128 ? row_pieces * N : 128;
  static constexpr int pieces = row_pieces * N / slot_threads;  // for each of them
};

/// Shared memory of one CTA, by address.
template <class T>
struct LinearShared {
  uint32_t x;        ///< x_stages slots
  uint32_t y;        ///< one tile of results a consumer
  uint32_t weights;  ///< [consumers, w_stages]
  uint32_t x_full, x_empty;
  uint32_t w_full, w_empty;  ///< [consumers, w_stages]

  __device__ explicit LinearShared(uint32_t base) {
    x = (base + 1023) / 1024 * 1024;
    y = x + T::x_stages * T::x_bytes;
    weights = y + T::consumers * T::y_bytes;
    x_full = weights + T::consumers * T::w_stages * T::stage_bytes;
    x_empty = x_full + 8 * T::x_stages;
    w_full = x_empty + 8 * T::x_stages;
    w_empty = w_full + 8 * T::consumers * T::w_stages;
  }

  __device__ void init_barriers() const {
    for (int i = 0; i < T::x_stages; ++i) {
      barrier_init(x_full + 8 * i, T::q8 ? T::slot_threads / 32 : 1);
      barrier_init(x_empty + 8 * i, 4 * T::consumers);
    }
    for (int i = 0; i < T::consumers * T::w_stages; ++i) {
      barrier_init(w_full + 8 * i, 1);
      barrier_init(w_empty + 8 * i, 4);
    }
    barrier_init_fence();
  }
};

}  // namespace di::ops::cuda
