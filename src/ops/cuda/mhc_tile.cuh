// A hyper-connection site for a tile of many rows: the CTA of a sixteenth of the channels streams
// the rows' streams and fn through shared memory, a unit at a time. The arithmetic is that of
// SiteUnit.
//
// Some warps project on the tensor cores, the others collapse and add up squares, each for its rows
// of the tile. The last warp that is done with a stage asks for what comes into it next.
#pragma once

#include "ops/cuda/mhc_unit.cuh"

namespace di::ops::cuda {

inline constexpr int kTileStages = 4;
inline constexpr int kUnitFnBytes = kStreams * kFnVectors * 16;

/// A tile of `kRows_` rows; a warp that projects has sixteen of them, one that collapses eight.
template <int kRows_>
struct TileShape {
  static constexpr int kRows = kRows_;
  static constexpr int kProjecting = kRows / 16;
  static constexpr int kWarps = kProjecting + kRows / 8;
  static constexpr int kThreads = kWarps * 32;
  static constexpr bool kMovesRegisters = kRows == 128;  ///< to the warps that project
  static constexpr int kStreamBytes = kRows * 64;
};

/// Shared memory of a tile's CTA.
template <class Shape>
struct alignas(1024) TileMemory {
  /// A unit: of each stream 64 bytes a row, pieces in the order of piece_at(), then fn.
  struct Stage {
    uint4 h[kStreams][Shape::kRows][4];
    uint4 fn[kStreams * kFnVectors];
  };
  Stage stages[kTileStages];
  uint64_t full[kTileStages];
  int done[kTileStages];  ///< warps that were, of all uses of the stage
};

/// Copies of a tile's operands, unit by unit.
template <class Shape>
struct TileCopies {
  const SiteArgs& op;
  const CUtensorMap* map;
  TileMemory<Shape>& memory;
  int units;
  int first_row;

  /// The channels' unit that is the CTA's number `unit`: CTAs side by side read side by side.
  __device__ int place_of(int unit) const { return unit * kGroups + static_cast<int>(blockIdx.x); }
  __device__ void bring_fn(int unit) const {
    const int slot = unit % kTileStages;
    barrier_expect(&memory.full[slot], kUnitFnBytes + kStreams * Shape::kStreamBytes);
    const uint4* from = op.fn + int64_t{place_of(unit)} * kStreams * kFnVectors;
    bulk_load(memory.stages[slot].fn, from, kUnitFnBytes, &memory.full[slot]);
  }
  __device__ void bring_rows(int unit) const {
    const int slot = unit % kTileStages;
    const uint32_t full = shared_address(&memory.full[slot]);
    for (int stream = 0; stream < kStreams; ++stream) {
      const uint32_t to = shared_address(memory.stages[slot].h[stream]);
      tensor_load(to, map, place_of(unit) * kUnit, stream, first_row, full);
    }
  }
  /// One thread: the first ones.
  __device__ void begin() const {
    for (int unit = 0; unit < min(kTileStages, units); ++unit)
      bring_fn(unit);
    wait_for_previous_kernels();
    for (int unit = 0; unit < min(kTileStages, units); ++unit)
      bring_rows(unit);
  }
  /// A warp is done with `unit`.
  __device__ void leave(int unit) const {
    __syncwarp();
    const int next = unit + kTileStages;
    if (threadIdx.x % 32 != 0 || next >= units) return;
    __threadfence_block();
    const int before = atomicAdd(&memory.done[unit % kTileStages], 1);
    if (before % Shape::kWarps != Shape::kWarps - 1) return;
    __threadfence_block();
    bring_fn(next);
    bring_rows(next);
  }
};

/// Calls body(stage, unit) for each unit.
template <class Shape, class Body>
__device__ void for_units(const TileCopies<Shape>& copies, const Body& body) {
#pragma unroll 1
  for (int unit = 0; unit < copies.units; ++unit) {
    const int slot = unit % kTileStages;
    barrier_wait(&copies.memory.full[slot], static_cast<uint32_t>(unit / kTileStages) % 2);
    body(copies.memory.stages[slot], unit);
    copies.leave(unit);
  }
}

/// Where a tile leaves the sums: [groups, rows, kSums + 1], the squares of x last.
inline constexpr int kScratchSums = kSums + 1;

/// A warp's projections of its sixteen rows, added up over the units.
struct TileMixes {
  double at[3][4] = {};  // [eight outputs][of the fragment]

  /// One unit: `h` and `fn` are where the lane's row and part of fn begin.
  __device__ void add_unit(uint32_t h, uint32_t stream_bytes, const uint4* fn) {
    float mixes[3][4] = {};
#pragma unroll 1
    for (int stream = 0; stream < kStreams; ++stream) {
      uint32_t rows[2][4];
      load_matrices(h, rows[0]);
      load_matrices(h ^ 32, rows[1]);
      float chain[3][4] = {};
#pragma unroll
      for (int part = 0; part < 3; ++part) {
        uint4 parts[3];
#pragma unroll
        for (int n = 0; n < 3; ++n)
          parts[n] = fn[(n * 3 + part) * 32];
#pragma unroll
        for (int step = 0; step < 2; ++step) {
#pragma unroll
          for (int n = 0; n < 3; ++n)
            mma_step(chain[n], rows[step], parts[n], step);
        }
      }
#pragma unroll
      for (int i = 0; i < 12; ++i)
        mixes[i / 4][i % 4] += chain[i / 4][i % 4];
      h += stream_bytes;
      fn += kFnVectors;
    }
#pragma unroll
    for (int i = 0; i < 12; ++i)
      at[i / 4][i % 4] += static_cast<double>(mixes[i / 4][i % 4]);
  }
};

/// The projections of the sixteen rows of the tile from `first` on.
template <class Shape>
__device__ void project_rows(const TileCopies<Shape>& copies, int first, double* sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Eight lanes each give the rows of one matrix: rows and those 8 further, then the next channels.
  const int own = first + lane % 16;
  TileMixes mixes;
  for_units(copies, [&](typename TileMemory<Shape>::Stage& stage, int /*unit*/) {
    mixes.add_unit(
        shared_address(&stage.h[0][own][piece_at(own, lane / 16)]),
        Shape::kStreamBytes,
        stage.fn + lane
    );
  });
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + half * 8 + lane / 4;
    if (copies.first_row + row >= copies.op.rows) break;
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      *reinterpret_cast<double2*>(sums + row * kScratchSums + n * 8 + lane % 4 * 2) = {
          mixes.at[n][half * 2], mixes.at[n][half * 2 + 1]};
    }
  }
}

/// x and the squares of the eight rows of the tile from `first` on.
template <class Shape>
__device__ void collapse_rows(const TileCopies<Shape>& copies, int first, double* sums) {
  const SiteArgs& op = copies.op;
  const int own = first + static_cast<int>(threadIdx.x) % 32 / 4;
  const int piece = static_cast<int>(threadIdx.x) % 4;
  const int64_t row = copies.first_row + own;
  const bool is_one = row < op.rows;
  float4 a{};
  if (op.a != nullptr && is_one) a = __ldg(reinterpret_cast<const float4*>(op.a) + row);
  bf16* x = op.x + row * op.hidden + piece * kVector;
  double squares[2] = {};
  for_units(copies, [&](typename TileMemory<Shape>::Stage& stage, int unit) {
    uint4 h[kStreams];
#pragma unroll
    for (int c = 0; c < kStreams; ++c)
      h[c] = stage.h[c][own][piece_at(own, piece)];
    squares[0] += squares_of_streams(h);
    if (op.a == nullptr) return;
    const uint4 result = collapse_vector(h, {a.x, a.y, a.z, a.w});
    if (is_one) store_vector(x + copies.place_of(unit) * kUnit, result);
    squares[1] += squares_of_vector(result);
  });
  squares[0] = sum_over_four(squares[0]);
  squares[1] = sum_over_four(squares[1]);
  if (!is_one || piece != 0) return;
  *reinterpret_cast<double2*>(sums + own * kScratchSums + kMixes) = {squares[0], squares[1]};
}

/// A CTA for a sixteenth of the channels (x) and a tile of rows (y). op.x gets x before its norm,
/// `sums` those of the sixteenth.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) tile_kernel(
    const __grid_constant__ SiteArgs op, const __grid_constant__ CUtensorMap map, double* sums
) {
  extern __shared__ __align__(1024) std::byte tile_bytes[];
  auto& memory = *reinterpret_cast<TileMemory<Shape>*>(tile_bytes);
  const int units = op.hidden / kUnit / kGroups;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int first_row = static_cast<int>(blockIdx.y) * Shape::kRows;
  const TileCopies<Shape> copies{op, &map, memory, units, first_row};
  let_next_kernel_start();
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < kTileStages; ++slot) {
      barrier_init(&memory.full[slot], 1);
      memory.done[slot] = 0;
    }
    barrier_init_fence();
    copies.begin();
  }
  __syncthreads();
  wait_for_previous_kernels();
  double* own = sums + (int64_t{blockIdx.x} * op.rows + first_row) * kScratchSums;
  if (warp < Shape::kProjecting) {
    if constexpr (Shape::kMovesRegisters) raise_registers<96>();
    project_rows(copies, warp * 16, own);
  } else {
    if constexpr (Shape::kMovesRegisters) lower_registers<72>();
    collapse_rows(copies, (warp - Shape::kProjecting) * 8, own);
  }
}

}  // namespace di::ops::cuda
