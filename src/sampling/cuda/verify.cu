// The draws of blocks, and which of them are text; see verify.h.
#include "base/error.h"
#include "ops/cuda/launch.h"
#include "sampling/cuda/draw_args.cuh"

namespace di::sampling::cuda {
namespace {

/// ends_choice() of the slot's parameters.
__device__ bool ends_choice(const SlotParams& params, int32_t token) {
  if (token == params.eos && !params.ignore_eos) return true;
  for (int64_t i = 0; i < params.stops.count; ++i) {
    if (params.stops.ids[i] == token) return true;
  }
  return false;
}

/// A warp a block; a lane has one of its rows.
__global__ void __launch_bounds__(32)
    follow_drafts(const __grid_constant__ Args args, int32_t* num_drawn) {
  cudaGridDependencySynchronize();
  const VerifyBlock block = args.blocks[blockIdx.x];
  if (block.slot < 0) return;
  const SlotParams& params = args.slots[block.slot];
  const int lane = static_cast<int>(threadIdx.x);
  const int drafts = min(block.num_drafts, args.block_rows - 1);
  const int32_t token = lane <= drafts ? args.results.tokens[block.first_row + lane] : -1;
  const bool goes_on =
      lane < drafts && token >= 0 && token == block.drafts[lane] && !ends_choice(params, token);
  const int drawn = __ffs(static_cast<int>(~__ballot_sync(kAllLanes, goes_on)));
  const bool is_text = lane < drawn && token >= 0;
  const int num_tokens = __popc(__ballot_sync(kAllLanes, is_text));
  if (lane == 0) {
    num_drawn[blockIdx.x] = drawn;
    *params.num_outputs += num_tokens;
  }
  if (!is_text) return;
  if (block.place != nullptr) block.place[lane] = token;
  if (params.seen != nullptr) atomicAdd(params.seen + token, 1u);
}

void enqueue_follow(cudaStream_t stream, const Args& args, const View<int32_t, 1>& num_drawn) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned int>(num_drawn.dim(0)));
  config.blockDim = dim3(32);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  ops::cuda::check(
      cudaLaunchKernelEx(&config, follow_drafts, args, num_drawn.data), "verify: follow drafts"
  );
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
  check_vocabulary(args.vocab_size);
  check_drafts(rows.most_drafts);
  if (rows.blocks.dim(0) == 0) return;
  enqueue_draws(stream, args, rows.blocks.dim(0) * args.block_rows);
  enqueue_follow(stream, args, rows.num_drawn);
}

}  // namespace di::sampling::cuda
