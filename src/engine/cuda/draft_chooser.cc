#include "engine/cuda/draft_chooser.h"

namespace di::engine::cuda {

DraftChooser::DraftChooser(
    const View<const sampling::cuda::DraftRow, 1>& rows,
    const View<const sampling::cuda::SlotParams, 1>& slots
)
    : rows_(rows), slots_(slots) {}

void DraftChooser::choose(
    ops::Exec& exec,
    int64_t index,
    const View<const float, 2>& logits,
    const View<int32_t, 1>& tokens
) {
  const int64_t sequences = tokens.dim(0);
  const View<int32_t, 2> drafts(tokens.data - index * sequences, index + 1, sequences);
  sampling::cuda::choose_drafts(
      exec.stream, {.logits = logits, .rows = rows_, .slots = slots_, .drafts = drafts}
  );
}

}  // namespace di::engine::cuda
