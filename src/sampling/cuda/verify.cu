// The draws of blocks, and which of them are text; see verify.h.
#include "base/error.h"
#include "sampling/cuda/block_verdict.cuh"
#include "sampling/cuda/draw_kernel.cuh"
#include "sampling/cuda/row_draw.cuh"

namespace di::sampling::cuda {
namespace {

/// A cluster a block that is judged: finds how many drafts stay, and draws the token behind them.
__global__ void __launch_bounds__(kThreads, kCtasAtOnce)
    draw_behind(const __grid_constant__ Args args) {
  extern __shared__ __align__(16) char bytes[];
  __shared__ VerdictMemory verdict_memory;
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  cudaGridDependencySynchronize();
  const VerifyBlock block = args.blocks[blockIdx.y];
  if (block.slot < 0 || !is_judged(block)) return;
  const SlotParams& params = args.slots[block.slot];
  const Verdict verdict = BlockJudge(block, drafts_of(args, block), params, verdict_memory).run();
  if (blockIdx.x == 0 && threadIdx.x == 0)
    args.num_drawn[blockIdx.y] = verdict.accepted + (verdict.is_over ? 0 : 1);
  if (verdict.is_over) return;
  const RowOrder order{
      .row = block.first_row + verdict.accepted,
      .slot = block.slot,
      .position = block.position,
      .ahead = {block.drafts, verdict.accepted, 1}};
  const auto tell = [&](int lane) {
    tell_draw(memory, params, order, args.results, lane);
    if (lane != 0) return;
    memory.task.share = verdict.share;
    if (verdict.token >= 0) memory.task.token = verdict.token;
  };
  RowWork row(args, memory, part_of(args, memory, order.row));
  if (verdict.token >= 0 && !params.wants_logprobs) {
    if (threadIdx.x < 32) tell(static_cast<int>(threadIdx.x));
    return row.finish(verdict.token, 0);
  }
  LeftOut left_out;
  if (verdict.replaces) {
    const DraftRecord& record = block.records[verdict.accepted];
    left_out = {record.tokens, record.count, verdict.others};
  }
  RowDraw(row, left_out).run(tell);
}

/// A warp a block; a lane has one of its rows.
__global__ void __launch_bounds__(32) follow_drafts(const __grid_constant__ Args args) {
  cudaGridDependencySynchronize();
  const VerifyBlock block = args.blocks[blockIdx.x];
  if (block.slot < 0) return;
  const SlotParams& params = args.slots[block.slot];
  const int lane = static_cast<int>(threadIdx.x);
  const int drafts = drafts_of(args, block);
  const bool is_drawn = lane <= drafts;
  int drawn = 0;
  int32_t token = -1;
  if (is_judged(block)) {
    drawn = args.num_drawn[blockIdx.x];
    if (lane < drawn) token = args.results.tokens[block.first_row + lane];
  } else {
    if (is_drawn) token = args.results.tokens[block.first_row + lane];
    const bool goes_on =
        lane < drafts && token >= 0 && token == block.drafts[lane] && !ends_choice(params, token);
    drawn = __ffs(static_cast<int>(~__ballot_sync(kAllLanes, goes_on)));
  }
  const bool is_text = lane < drawn && token >= 0;
  const int num_tokens = __popc(__ballot_sync(kAllLanes, is_text));
  if (lane == 0) {
    args.num_drawn[blockIdx.x] = drawn;
    *params.num_outputs += num_tokens;
  }
  if (!is_text) return;
  if (block.place != nullptr) block.place[lane] = token;
  if (params.seen != nullptr) atomicAdd(params.seen + token, 1u);
}

void enqueue_follow(cudaStream_t stream, const Args& args, int64_t blocks) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned int>(blocks));
  config.blockDim = dim3(32);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  ops::cuda::check(cudaLaunchKernelEx(&config, follow_drafts, args), "verify: follow drafts");
}

void check_drafts(int64_t most) {
  if (most >= 0 && most <= kMostDrafts) return;
  throw Error(
      ErrorCode::kUnsupported,
      "cuda: blocks of 0 to " + std::to_string(kMostDrafts) + " drafts are verified, not of " +
          std::to_string(most)
  );
}

}  // namespace

void verify(cudaStream_t stream, const VerifyRows& rows) {
  Args args = args_of(rows.logits, rows.drawn);
  args.slots = rows.slots.data;
  args.blocks = rows.blocks.data;
  args.block_rows = static_cast<int>(rows.most_drafts) + 1;
  args.num_drawn = rows.num_drawn.data;
  check_vocabulary(args.vocab_size);
  check_drafts(rows.most_drafts);
  const int64_t blocks = rows.blocks.dim(0);
  if (blocks == 0) return;
  enqueue_block_draws(stream, args, blocks * args.block_rows);
  if (rows.most_drafts > 0) {
    launch_row_kernel<draw_behind>("verify: draw behind drafts", stream, args, blocks);
  }
  enqueue_follow(stream, args, blocks);
}

}  // namespace di::sampling::cuda
