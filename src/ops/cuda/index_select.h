// The indexer's selection on the device.
#pragma once

#include "ops/exec.h"
#include "ops/indexer.h"

namespace di::ops::cuda {

/// Scores and selects; see ops/indexer.h. Workspace: two bytes for each place of a row, in chunks
/// of rows of at most 256 MB. Throws Error{kUnsupported} when Rows::max_length is unknown, or when
/// more places are asked for than kMaxTopK.
void index_select(Exec& exec, const IndexSelect& op);

namespace canonical {

/// The same with the scores of the plain kernel, whose arithmetic is the reference's.
void index_select(Exec& exec, const IndexSelect& op);

}  // namespace canonical

}  // namespace di::ops::cuda
