// The best of many scores, exactly: the second half of index_select. Deterministic, ties to the
// lower place, output in ascending order.
#pragma once

#include "ops/cuda/index_scores.h"

namespace di::ops::cuda {

/// The most places that a selection may keep.
inline constexpr int64_t kMaxTopK = 4096;

/// Writes the entries of the best op.selected.dim(1) places of each row of `scores`.
void select_entries(Exec& exec, const IndexSelect& op, const IndexScores& scores);

/// Writes the best op.candidates_out.dim(1) blocks of each row of `scores`: by their best score,
/// the newest block always among them.
void select_blocks(Exec& exec, const IndexSelect& op, const IndexScores& scores);

}  // namespace di::ops::cuda
