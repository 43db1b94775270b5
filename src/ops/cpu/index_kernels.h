// What an instruction set provides for the indexer's scores. Which keys a row scores, the selection
// and the threads are written once, in indexer.cc.
//
// The lanes of every kernel are keys. E2M1 codes count in halves, −12 ... 12, so the dot product of
// 32 columns is a small exact integer, and groups with different scales are shifted to a common
// unit: the whole dot product is one exact int32, which is what the reference's sum in double is
// too. Scales too far apart for that (Spread) are left to the reference.
#pragma once

#include <cstdint>

namespace di::ops::cpu {

/// Keys of a tile.
inline constexpr int64_t kKeyTile = 64;

/// Columns with a common scale.
inline constexpr int64_t kIndexGroup = 32;

/// How the scales of some vectors lie: a vector's unit is its smallest scale among the groups that
/// are not all zero, a shift how far a group's scale lies above it.
struct Spread {
  int32_t low = 0;    ///< smallest unit, an E8M0 code
  int32_t high = 0;   ///< largest unit or scale
  int32_t shift = 0;  ///< largest shift
};

/// Keys ready to be multiplied.
struct KeyTile {
  uint8_t* codes;   ///< [dim / 4][kKeyTile][4]: values plus 12; columns: see query_column
  int32_t* shifts;  ///< [dim / kIndexGroup][kKeyTile]
  float* units;     ///< [kKeyTile]: 2^(unit − 128), half for the halves
  Spread spread;
};

/// The column at place `i` of a group: a word of four packed bytes gives its even columns, then
/// its odd ones.
constexpr int64_t query_column(int64_t i) {
  return i / 8 * 8 + i % 4 * 2 + i / 4 % 2;
}

/// One row's queries, ready to be multiplied.
struct IndexQuery {
  const int8_t* values;   ///< [heads][dim], places as in query_column
  const int32_t* bias;    ///< [heads][dim / kIndexGroup]: −12 Σ values, for the keys' 12
  const int32_t* shifts;  ///< [heads][dim / kIndexGroup]
  const float* units;     ///< [heads]: 2^(unit − 128)
  const float* weights;   ///< [heads]
};

/// The kernels of one instruction set. Results are bit-identical between sets.
struct IndexKernels {
  /// Fills `tile` from the packed codes and E8M0 scales of kKeyTile keys.
  void (*pack
  )(const uint8_t* const* codes, const uint8_t* const* scales, int64_t dim, KeyTile& tile);
  /// scores[key] = bf16(Σ_h bf16(relu(bf16(q_h · key)) · weight_h)).
  void (*score
  )(const KeyTile& tile, const IndexQuery& query, int64_t heads, int64_t dim, float* scores);
};

extern const IndexKernels kAvx2Index;
extern const IndexKernels kAvx512Index;
extern const IndexKernels kVnniIndex;

}  // namespace di::ops::cpu
