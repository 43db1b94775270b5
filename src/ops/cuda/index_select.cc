#include "ops/cuda/index_select.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "ops/cuda/index_top_k.h"

namespace di::ops::cuda {
namespace {

constexpr int64_t kWorkspaceBytes = int64_t{256} << 20;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kUnsupported, "cuda: index_select: " + what);
}

void check_shapes(const IndexSelect& op) {
  if (op.rows.max_length < 1) refuse("Rows::max_length is not set, workspace is sized by it");
  for (const int64_t k : {op.selected.dim(1), op.candidates_out.dim(1)}) {
    if (k > kMaxTopK) refuse(fmt::format("{} places of a row are wanted, at most {}", k, kMaxTopK));
  }
  if (op.candidate_block_size < 1 && !(op.candidates_in.empty() && op.candidates_out.empty())) {
    refuse("candidates without a block size");
  }
  if (!op.candidates_in.empty() && !op.candidates_out.empty()) {
    refuse("a layer that both reads and names candidates");
  }
}

using Score = void (*)(Exec&, const IndexSelect&, const IndexScores&);

void select_with(Exec& exec, const IndexSelect& op, Score score) {
  const int64_t rows = op.rows.count();
  if (rows == 0) return;
  check_shapes(op);
  const int64_t stride =
      std::max<int64_t>(1, (max_places(op) + kScoreTile - 1) / kScoreTile) * kScoreTile;
  const int64_t chunk = std::clamp<int64_t>(kWorkspaceBytes / (stride * 2), 1, rows);
  const Arena::Scope scope(exec.scratch);
  // Never less for a longer context, so that scratch can be planned for the longest.
  const int64_t keys = std::min(rows * stride, std::max(stride, kWorkspaceBytes / 2));
  IndexScores scores{
      .keys = exec.scratch.take<uint16_t>(keys),
      .bests = exec.scratch.take<uint16_t>(keys / kVectorKeys),
      .stride = stride};
  for (scores.first_row = 0; scores.first_row < rows; scores.first_row += chunk) {
    scores.rows = std::min(chunk, rows - scores.first_row);
    score(exec, op, scores);
    select_entries(exec, op, scores);
    if (!op.candidates_out.empty()) select_blocks(exec, op, scores);
  }
}

}  // namespace

void index_select(Exec& exec, const IndexSelect& op) {
  select_with(exec, op, score_entries);
}

void canonical::index_select(Exec& exec, const IndexSelect& op) {
  select_with(exec, op, score_entries_plainly);
}

}  // namespace di::ops::cuda
