// Which rows each expert works on: the ids of a step, sorted by expert on the device, and cut into
// tiles for the grouped matrix multiplications.
#pragma once

#include <algorithm>
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

/// Counters besides those of the tiles: of the queues that work is handed out from.
inline constexpr int kWorkQueues = 4;

/// Work on the device, every pointer into scratch. Position p of the lists is one pair of a row and
/// an expert: the routed experts' pairs first, ascending by expert and then by row; then, from
/// rows · k on, the shared expert's rows.
struct ExpertLists {
  int32_t* target = nullptr;     ///< [rows · (k + 1)]: row · (k + 1) + slot; the shared slot is k
  float* weight = nullptr;       ///< [rows · (k + 1)]: the routing weight; 1 for the shared expert
  int32_t* position = nullptr;   ///< [rows, k + 1]: where a slot stands in the lists; -1: nowhere
  TokenTile* tiles = nullptr;    ///< [max_tiles]: the shared expert's first, then in list order
  int32_t* num_tiles = nullptr;  ///< [1]
  int32_t* counters = nullptr;   ///< [kWorkQueues + max_tiles]: zeros, for who works on the tiles
  int64_t max_tiles = 0;
  int32_t* block_counts = nullptr;  ///< for the sort alone
};

/// Pairs that a block of the sort places.
inline constexpr int64_t kListedPairs = 1024;

/// The lists' memory for `rows` rows of `k` experts each.
inline ExpertLists take_lists(
    Arena& scratch, int64_t rows, int64_t k, int64_t experts, int64_t tile_rows
) {
  const int64_t pairs = rows * k;
  ExpertLists lists;
  lists.max_tiles = std::min(experts, pairs) + pairs / tile_rows + rows / tile_rows + 1;
  lists.target = scratch.take<int32_t>(rows * (k + 1));
  lists.weight = scratch.take<float>(rows * (k + 1));
  lists.position = scratch.take<int32_t>(rows * (k + 1));
  lists.tiles = scratch.take<TokenTile>(lists.max_tiles);
  lists.num_tiles = scratch.take<int32_t>(1);
  lists.counters = scratch.take<int32_t>(kWorkQueues + lists.max_tiles);
  const int64_t blocks = std::max<int64_t>(1, (pairs + kListedPairs - 1) / kListedPairs);
  if (blocks > 1) lists.block_counts = scratch.take<int32_t>(blocks * experts);
  return lists;
}

/// Sorts `ids` [rows, k] into `lists`, which take_lists() took for the same numbers; ids outside of
/// [0, experts) are left out. No tile holds more than `tile_rows` rows (a multiple of 8), and the
/// tiles of one expert differ by less than eight rows but for the last. The result depends on the
/// operands alone. Throws kUnsupported beyond 1024 experts or 2^30 pairs.
void list_experts(
    Exec& exec,
    const View<const int32_t, 2>& ids,
    const View<const float, 2>& weights,
    int64_t experts,
    int64_t tile_rows,
    const ExpertLists& lists
);

}  // namespace di::ops::cuda
