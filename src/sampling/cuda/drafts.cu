#include "sampling/cuda/drafts.h"
#include "sampling/cuda/draw_args.cuh"

namespace di::sampling::cuda {

void choose_drafts(cudaStream_t stream, const DraftRows& rows) {
  const int64_t index = rows.drafts.dim(0) - 1;
  Args args = args_of(
      rows.logits, {.tokens = View<int32_t, 1>(rows.drafts.row(index), rows.drafts.dim(1))}
  );
  args.slots = rows.slots.data;
  args.rows = rows.rows.data;
  args.index = static_cast<int>(index);
  args.drafts = rows.drafts.data;
  args.drafted = static_cast<int>(rows.drafts.dim(1));
  args.is_alone = true;
  check_vocabulary(args.vocab_size);
  if (rows.rows.dim(0) > 0) enqueue_other_draws(stream, args, rows.rows.dim(0));
}

}  // namespace di::sampling::cuda
