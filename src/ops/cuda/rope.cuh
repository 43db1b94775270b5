// The rotation of one row's heads by one block, for the kernels that rotate.
#pragma once

#include "ops/cuda/scalars.cuh"
#include "ops/cuda/shapes.h"
#include "ops/cuda/vectors.cuh"
#include "ops/norm.h"

namespace di::ops::cuda {

/// Rope without what only the host can call.
struct RopeArgs {
  bf16* x;
  const int64_t* positions;
  const float* frequencies;
  int rows;
  int heads;
  int head_dim;
  int pairs;
  bool inverse;
};

inline RopeArgs rope_args(const Rope& op) {
  return {
      .x = op.x.data,
      .positions = op.positions.data,
      .frequencies = op.frequencies.data,
      .rows = static_cast<int>(op.x.dim(0)),
      .heads = static_cast<int>(op.x.dim(1)),
      .head_dim = static_cast<int>(op.x.dim(2)),
      .pairs = static_cast<int>(op.frequencies.dim(0)),
      .inverse = op.inverse};
}

/// Whether pieces of four pairs are aligned.
inline bool rotates_vectors(const Rope& op) {
  return op.frequencies.dim(0) % 4 == 0 && op.x.dim(2) % kVector == 0 &&
         reinterpret_cast<uintptr_t>(op.x.data) % 16 == 0;
}

/// Blocks of so many threads that share a row of so many pieces: one, unless rows are so few that
/// they leave processors to spare.
inline unsigned int shares_of_row(const RopeArgs& args, int pieces, int threads) {
  constexpr int kFewRows = 64;
  return args.rows <= kFewRows ? blocks_of(pieces, threads) : 1;
}

/// Bytes of shared memory that a block wants.
inline int rotation_bytes(const RopeArgs& args) {
  return args.pairs * static_cast<int>(sizeof(float2));
}

__device__ inline uint32_t rotate(uint32_t pair, float2 r) {
  const float a = low_float(pair);
  const float b = high_float(pair);
  return round_pair(a * r.x - b * r.y, a * r.y + b * r.x);
}
__device__ inline uint4 rotate(const uint4& four, const float2* r) {
  return {rotate(four.x, r[0]), rotate(four.y, r[1]), rotate(four.z, r[2]), rotate(four.w, r[3])};
}
__device__ inline uint32_t rotate(uint32_t pair, const float2* r) {
  return rotate(pair, *r);
}

/// Rotates share `share` of `shares` of a row's heads: the row's angles first, while the first
/// pieces are on their way. A piece is one pair of channels, or four where they are aligned. All
/// threads of the block call it; `rotations` is shared memory.
template <class Piece>
__device__ inline void rotate_share(
    const RopeArgs& args, int64_t row, int share, int shares, float2* rotations
) {
  constexpr int kPairs = sizeof(Piece) / 4;
  const int pieces = args.pairs / kPairs;
  bf16* start = args.x + row * args.heads * args.head_dim + args.head_dim - 2 * args.pairs;
  const auto place_of = [&](int i) {
    return reinterpret_cast<Piece*>(start + i / pieces * args.head_dim + i % pieces * kPairs * 2);
  };
  int i = static_cast<int>(share * blockDim.x + threadIdx.x);
  const bool has_piece = i < args.heads * pieces;
  Piece piece{};
  if (has_piece) piece = *place_of(i);
  for (int pair = threadIdx.x; pair < args.pairs; pair += blockDim.x)
    rotations[pair] = rotation(args.positions[row], args.frequencies[pair], args.inverse);
  __syncthreads();
  if (!has_piece) return;
  *place_of(i) = rotate(piece, rotations + i % pieces * kPairs);
  const int step = static_cast<int>(shares * blockDim.x);
  for (i += step; i < args.heads * pieces; i += step)
    *place_of(i) = rotate(*place_of(i), rotations + i % pieces * kPairs);
}

}  // namespace di::ops::cuda
