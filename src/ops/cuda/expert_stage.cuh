// Where the wide form leaves a unit's results between the warpgroups that multiply and the one that
// finishes: in bf16, 64 channels (128 bytes) a row of the tile, for each of two row tiles of
// weights. Pieces of 16 bytes are permuted by the row, so that neither side meets bank conflicts.
#pragma once

#include <cstdint>

#include "ops/cuda/expert_results.cuh"

namespace di::ops::cuda {

/// Bytes of a staged row.
inline constexpr int kStagedRow = 2 * kBlockRows;

/// Where the eight channels of number `octet` of a row lie.
__device__ inline int staged_offset(int token, int octet) {
  return kStagedRow * token + ((octet ^ (token & 6)) << 4);
}

/// Leaves the results of a warpgroup's row tile at `stage`, all rows that the products were wide.
template <int N>
__device__ __forceinline__ void stage_results(const float (&d)[N / 2], uint8_t* stage) {
  const ConsumerPlace at = ConsumerPlace::now();
  const int octet = 2 * at.warp() + at.row_pair() / 4;
  uint8_t* mine = stage + staged_offset(result_token(at, 0), octet) + 4 * (at.row_pair() % 4);
#pragma unroll
  for (int i = 0; i < N / 4; ++i) {
    // The permutation of a thread's rows is the same: they differ by multiples of 8, and by 1.
    const int token = 8 * (i / 2) + i % 2;
    *reinterpret_cast<uint32_t*>(mine + kStagedRow * token) = result_pair<N>(d, i);
  }
}

/// Eight channels of a staged row.
__device__ inline uint4 staged(const uint8_t* stage, int token, int octet) {
  return *reinterpret_cast<const uint4*>(stage + staged_offset(token, octet));
}

}  // namespace di::ops::cuda
