// IndexSelect as kernels see it, and the order keys of scores.
#pragma once

#include "ops/cuda/index_scores.h"
#include "ops/cuda/vectors.cuh"

namespace di::ops::cuda {

/// IndexSelect without what only the host can call; rows count from the op's first.
struct IndexCall {
  IndexScores scores;
  const uint8_t* q_codes = nullptr;     // [rows, heads, dim / 2]
  const uint8_t* q_scales = nullptr;    // [rows, heads, dim / 32]
  const bf16* head_weights = nullptr;   // [rows, heads]
  const int32_t* candidates = nullptr;  // [rows, width], or nullptr: all entries
  int width = 0;
  int block_size = 1;
  int candidate_shift = 0;  ///< block_size is 2^this, where the fast kernel is used
  int heads = 0;
  int dim = 0;
  PagedView keys;
  int block_shift = 0;      ///< entries of a block are 2^this, where the fast kernel is used
  uint32_t block_mask = 0;  ///< and one less
  uint32_t scales_at = 0;   ///< bytes of a block before its scales
  int ratio = 1;
  const SequenceRows* sequences = nullptr;
  int num_sequences = 0;
  const int32_t* sequence_of = nullptr;
  const int64_t* positions = nullptr;

  /// Entries that a row may see.
  __device__ int visible(int64_t row) const {
    return (static_cast<int>(positions[row]) + 1) / ratio;
  }
  /// Places of a row with `visible` entries.
  __device__ int places(int visible) const {
    if (candidates == nullptr) return visible;
    return min(width, (visible + block_size - 1) / block_size) * block_size;
  }
};

/// The order key of a score: 0 for NaN and −∞, which are never selected; both zeros are equal.
__device__ inline uint16_t order_key(float score) {
  const float rounded = low_float(round_pair(score, 0)) + 0.0f;
  const uint32_t bits = __float_as_uint(rounded);
  const uint32_t key =
      (bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u)) >> 16;
  return rounded > __uint_as_float(0xff800000u) ? static_cast<uint16_t>(key) : uint16_t{0};
}

/// Above the key of every score.
inline constexpr uint16_t kFirstOfAll = 0xffff;

/// The best of the eight keys of a vector.
__device__ inline uint32_t best_key(const uint4& vector) {
  const uint32_t all = __vmaxu2(__vmaxu2(vector.x, vector.y), __vmaxu2(vector.z, vector.w));
  return max(all & 0xffffu, all >> 16);
}

/// Scores rows that no two share a sequence, up to `places` places each, on tensor cores; for what
/// the fast kernel takes, without candidates.
void score_rows_alone(Exec& exec, const IndexCall& call, int64_t places);

/// What the kernels need of `op` for the rows of `scores`.
IndexCall index_call(const IndexSelect& op, const IndexScores& scores);

}  // namespace di::ops::cuda
