// Which rows each expert works on: the ids of a step, sorted by expert on the device, and cut into
// tiles for the grouped matrix multiplications.
#pragma once

#include <cstdint>

#include "ops/exec.h"

namespace di::ops::cuda {

/// Rows of one expert that are multiplied together: positions [begin, begin + count) of the lists.
struct TokenTile {
  int32_t expert;  ///< the number of routed experts stands for the shared expert
  int32_t begin;
  int32_t count;
  int32_t tiles_of_expert;
};

/// Work on the device, every pointer into scratch. Position p of the lists is one pair of a row and
/// an expert: the routed experts' pairs first, ascending by expert and then by row; then, from
/// rows · k on, the shared expert's rows.
struct ExpertLists {
  int32_t* target = nullptr;     ///< [rows · (k + 1)]: row · (k + 1) + slot; the shared slot is k
  float* weight = nullptr;       ///< [rows · (k + 1)]: the routing weight; 1 for the shared expert
  TokenTile* tiles = nullptr;    ///< [max_tiles]: the shared expert's first, then in list order
  int32_t* num_tiles = nullptr;  ///< [1]
  int32_t* counters = nullptr;   ///< [1 + max_tiles]: zeros, for whoever works on the tiles
  int64_t max_tiles = 0;
};

/// Sorts `ids` [rows, k]; ids outside of [0, experts) are left out. No tile holds more than
/// `tile_rows` rows (a multiple of 8), and the tiles of one expert differ by less than eight rows
/// but for the last. The result depends on the operands alone. Throws kUnsupported beyond 1024
/// experts or 2^30 pairs.
ExpertLists list_experts(
    Exec& exec,
    const View<const int32_t, 2>& ids,
    const View<const float, 2>& weights,
    int64_t experts,
    int64_t tile_rows
);

}  // namespace di::ops::cuda
