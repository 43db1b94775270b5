#include "sampling/cuda/drafts.h"
#include "sampling/cuda/draw_kernel.cuh"
#include "sampling/cuda/row_drafts.cuh"

namespace di::sampling::cuda {
namespace {

/// A cluster a draft.
__global__ void __launch_bounds__(kThreads, kCtasAtOnce)
    draft_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(16) char bytes[];
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  cudaGridDependencySynchronize();
  const auto index = static_cast<int>(blockIdx.y);
  const DraftRow draft = args.draft_rows[index];
  if (draft.slot < 0 || draft.is_plain) return;
  const bool is_judged = draft.records != nullptr;
  const RowOrder order{
      .row = index,
      .slot = draft.slot,
      .position = draft.position,
      .ahead = {args.drafts + index, args.index, args.drafted}};
  const SlotParams& params = args.slots[draft.slot];
  const auto tell = [&](int lane) {
    tell_draw(memory, params, order, args.results, lane);
    if (lane != 0) return;
    if (is_judged) {
      memory.task.share =
          uniform_of(memory.params.seed, draft.position, Stream::kDraft, args.index);
    } else {
      memory.params.temperature = 0;
    }
  };
  RowWork row(args, memory, part_of(args, memory, index));
  if (is_judged) {
    RowDraft(row, draft.records[args.index]).run(tell);
  } else {
    const LeftOut none;
    RowDraw(row, none).run(tell);
  }
}

}  // namespace

void choose_drafts(cudaStream_t stream, const DraftRows& rows) {
  const int64_t index = rows.drafts.dim(0) - 1;
  Args args = args_of(
      rows.logits, {.tokens = View<int32_t, 1>(rows.drafts.row(index), rows.drafts.dim(1))}
  );
  args.slots = rows.slots.data;
  args.draft_rows = rows.rows.data;
  args.index = static_cast<int>(index);
  args.drafts = rows.drafts.data;
  args.drafted = static_cast<int>(rows.drafts.dim(1));
  check_vocabulary(args.vocab_size);
  launch_row_kernel<draft_kernel>("choose drafts", stream, args, rows.rows.dim(0));
}

}  // namespace di::sampling::cuda
