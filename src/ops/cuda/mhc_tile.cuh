// A unit of a hyper-connection site for a tile of 32 rows, when there are many: one warp, which
// keeps its rows in shared memory and reads fn as it goes, so that two CTAs fit on a processor. The
// arithmetic is that of SiteUnit.
#pragma once

#include "ops/cuda/mhc_unit.cuh"

namespace di::ops::cuda {

inline constexpr int kManyRows = 2 * kTileRows;

/// A warp's shared memory: the unit of each stream, 64 bytes a row. Every lane copies what it reads
/// itself. When the streams are used up, the first one's place holds x, and the others' the sums.
struct TileMemory {
  struct Sums {
    float mixes[kManyRows][kMixes];
    double h_squares[kManyRows];
    double x_squares[kManyRows];
  };
  using Stream = uint4[kManyRows][4];

  Stream x;
  union {
    Stream streams[kStreams - 1];
    Sums sums;
  };

  __device__ uint4* at(int stream, int row, int piece) {
    return &x[row][piece] + stream * (kManyRows * 4);
  }
};
static_assert(sizeof(TileMemory) == kStreams * kManyRows * 64);

/// Streams the unit's rows in, projects, collapses, and leaves x and the sums in its memory.
__device__ inline void run_tile(const SiteArgs& op, TileMemory& memory, int unit, int first_row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = lane / 4;
  const int piece = lane % 4;
  const int channel = unit * kUnit + piece * kVector;
  const int last_row = op.rows - 1;
  const uint4* fn = op.fn + int64_t{unit} * kStreams * kFnVectors + lane;
#pragma unroll 1
  for (int stream = 0; stream < kStreams; ++stream) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t from = min(first_row + row + i * 8, last_row);
      copy_async(
          memory.at(stream, row + i * 8, piece),
          op.h + (from * kStreams + stream) * op.hidden + channel
      );
    }
  }
  uint4 next[3];  // the parts that are used next
#pragma unroll
  for (int part = 0; part < 3; ++part)
    next[part] = __ldg(fn + part * 32);
  wait_copies();
  float mixes[2][3][4] = {};
  float squares[4] = {};
#pragma unroll 1
  for (int stream = 0; stream < kStreams; ++stream) {
    uint4 rows[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      rows[i] = *memory.at(stream, row + i * 8, piece);
      float values[kVector];
      unpack(rows[i], values);
#pragma unroll
      for (int k = 0; k < kVector; ++k)
        squares[i] = fmaf(values[k], values[k], squares[i]);
    }
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      uint4 parts[3];
      fn += 3 * 32;
      const bool is_last = n == 2 && stream == kStreams - 1;
#pragma unroll
      for (int part = 0; part < 3; ++part) {
        parts[part] = next[part];
        if (!is_last) next[part] = __ldg(fn + part * 32);
      }
      float chain[2][4] = {};
#pragma unroll
      for (int part = 0; part < 3; ++part) {
#pragma unroll
        for (int step = 0; step < 2; ++step) {
#pragma unroll
          for (int tile = 0; tile < 2; ++tile)
            mma_step(chain[tile], rows[2 * tile], rows[2 * tile + 1], parts[part], step);
        }
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
        mixes[i / 4][n][i % 4] += chain[i / 4][i % 4];
    }
  }

  double x_squares[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (op.a == nullptr) break;
    const int64_t from = min(first_row + row + i * 8, last_row);
    const float4 a = __ldg(reinterpret_cast<const float4*>(op.a) + from);
    uint4 h[kStreams];
#pragma unroll
    for (int c = 0; c < kStreams; ++c)
      h[c] = *memory.at(c, row + i * 8, piece);
    const uint4 result = collapse_vector(h, {a.x, a.y, a.z, a.w});
    memory.x[row + i * 8][piece] = result;
    float x[kVector];
    unpack(result, x);
#pragma unroll
    for (int k = 0; k < kVector; ++k)
      x_squares[i] += x[k] * x[k];
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = row + i * 8;
#pragma unroll
    for (int n = 0; n < 3; ++n) {
      *reinterpret_cast<float2*>(&memory.sums.mixes[at][n * 8 + piece * 2]) = {
          mixes[i / 2][n][i % 2 * 2], mixes[i / 2][n][i % 2 * 2 + 1]};
    }
    const double h = sum_over_four(static_cast<double>(squares[i]));
    const double x = sum_over_four(x_squares[i]);
    if (piece == 0) memory.sums.h_squares[at] = h;
    if (piece == 0) memory.sums.x_squares[at] = x;
  }
}

}  // namespace di::ops::cuda
