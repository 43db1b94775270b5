// The draws and scores of rows; see draw.h and docs/sampling.md, "On the device". Rows that are
// plainly greedy are left to the kernel of greedy.cuh, beside which the one for all others runs.
#include "base/error.h"
#include "sampling/cuda/draw_kernel.cuh"
#include "sampling/cuda/greedy.cuh"
#include "sampling/cuda/row_drafts.cuh"

namespace di::sampling::cuda {
namespace {

/// The CTA's part of a draw, or of a row that judges a draft.
template <bool kOfBlocks>
__device__ void take_part(const Args& args, Memory& memory) {
  const RowOrder order = order_of<kOfBlocks>(args, static_cast<int>(blockIdx.y));
  if (order.slot < 0 || order.is_plain) return;
  const bool judges = order.record != nullptr;
  const auto tell = [&](int lane) {
    tell_draw(memory, args.slots[order.slot], order, args.results, lane);
    if (lane != 0) return;
    if (judges) {
      memory.task.forced = memory.task.token;
      memory.task.token = order.ahead.tokens[order.ahead.count];
    } else {
      memory.task.share = uniform_of(memory.params.seed, order.position, Stream::kTarget);
    }
  };
  RowWork row(args, memory, part_of(args, memory, order.row));
  if constexpr (kOfBlocks) {
    if (judges) return RowJudge(row, *order.record).run(tell);
  }
  const LeftOut none;
  RowDraw(row, none).run(tell);
}

/// Runs beside the greedy rows, whose kernel has waited for what is before; but ends behind it, as
/// what follows waits for this one alone.
template <bool kOfBlocks>
__global__ void __launch_bounds__(kThreads, kCtasAtOnce)
    draw_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(16) char bytes[];
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  cudaTriggerProgrammaticLaunchCompletion();
  take_part<kOfBlocks>(args, memory);
  if (blockIdx.x == 0 && blockIdx.y == 0) cudaGridDependencySynchronize();
}

__global__ void __launch_bounds__(kThreads, kCtasAtOnce)
    score_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(16) char bytes[];
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  cudaGridDependencySynchronize();
  const int index = static_cast<int>(blockIdx.y);
  const int32_t token = args.tokens[index];
  if (token < 0) return;
  RowWork row(args, memory, part_of(args, memory, index));
  const LeftOut none;
  RowDraw(row, none).run([&](int lane) {
    if (lane != 0) return;
    memory.task = {
        .row = index,
        .token = token,
        .top = min(args.tops[index], args.results.most),
        .reports_model = true};
  });
}

/// Enqueues plainly greedy rows by the one kernel, the others by a second one that runs beside it.
template <bool kOfBlocks>
void enqueue_draws(cudaStream_t stream, const Args& args, int64_t rows) {
  if (rows == 0) return;
  launch_rows("draw: greedy rows", stream, &draw_greedily<kOfBlocks>, args, rows, 0);
  launch_row_kernel<draw_kernel<kOfBlocks>>("draw", stream, args, rows);
}

}  // namespace

void check_vocabulary(int64_t vocab_size) {
  if (vocab_size >= 1 && vocab_size <= kMaxVocabulary) return;
  throw Error(
      ErrorCode::kUnsupported,
      "cuda: the sampler takes vocabularies of 1 to " + std::to_string(kMaxVocabulary) +
          " tokens, this one has " + std::to_string(vocab_size)
  );
}

Args args_of(const View<const float, 2>& logits, const Drawn& drawn) {
  Args args;
  args.logits = logits.data;
  args.vocab_size = static_cast<int>(logits.dim(1));
  args.part_size = part_size_of(logits.dim(1));
  args.results = {
      .tokens = drawn.tokens.data,
      .logprobs = drawn.logprobs.data,
      .finite = drawn.finite.data,
      .top_tokens = drawn.top_tokens.data,
      .top_logprobs = drawn.top_logprobs.data,
      .most = drawn.top_tokens.empty() ? 0 : static_cast<int>(drawn.top_tokens.dim(1))};
  return args;
}

void enqueue_block_draws(cudaStream_t stream, const Args& args, int64_t rows) {
  enqueue_draws<true>(stream, args, rows);
}

void draw(cudaStream_t stream, const DrawRows& rows) {
  Args args = args_of(rows.logits, rows.drawn);
  args.slots = rows.slots.data;
  args.rows = rows.rows.data;
  args.counts = true;
  check_vocabulary(args.vocab_size);
  enqueue_draws<false>(stream, args, rows.rows.dim(0));
}

void score(cudaStream_t stream, const ScoreRows& rows) {
  Args args = args_of(rows.logits, rows.drawn);
  args.tokens = rows.tokens.data;
  args.tops = rows.tops.data;
  check_vocabulary(args.vocab_size);
  launch_row_kernel<score_kernel>("score", stream, args, rows.tokens.dim(0));
}

}  // namespace di::sampling::cuda
