// The draws and scores of rows; see draw.h and docs/sampling.md, "On the device". Rows that are
// plainly greedy are left to the kernel of greedy.cuh, beside which the one for all others runs.
#include "base/error.h"
#include "ops/cuda/launch.h"
#include "sampling/cuda/greedy.cuh"
#include "sampling/cuda/row_draw.cuh"

namespace di::sampling::cuda {
namespace {

constexpr int kMaxVocabulary = 1 << 18;

/// The CTA's part of a row: draws with slots, or scores of given tokens.
template <bool kDraws>
__device__ void take_part(const Args& args, char* bytes) {
  Memory& memory = *reinterpret_cast<Memory*>(bytes);
  const int index = static_cast<int>(blockIdx.y);
  Task task;
  if constexpr (kDraws) {
    const RowOrder order = order_of(args, index);
    if (order.slot < 0) return;
    const SlotParams& params = args.slots[order.slot];
    if (is_plainly_greedy(params)) return;
    if (threadIdx.x == 0) {
      memory.params = params;
      memory.ahead = order.ahead;
    }
    task = task_of_draw(params, order, args.results);
  } else {
    task.row = index;
    task.token = args.tokens[index];
    task.reports_model = true;
    task.top = min(args.tops[index], args.results.most);
    if (task.token < 0) return;
  }
  const int begin = static_cast<int>(blockIdx.x) * args.part_size;
  float* logits = reinterpret_cast<float*>(bytes + sizeof(Memory));
  const RowPart part{
      .logits = logits,
      .bits = reinterpret_cast<uint32_t*>(logits + args.part_size),
      .params = &memory.params,
      .ahead = &memory.ahead,
      .begin = begin,
      .size = max(0, min(args.part_size, args.vocab_size - begin))};
  RowDraw(args, memory, part).run(task);
}

/// Scores and drafts wait for what is before them. Draws run beside the greedy rows, whose kernel
/// has waited; but they end behind it, as what follows waits for them alone.
template <bool kDraws>
__global__ void __launch_bounds__(kThreads, 2) draw_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(16) char bytes[];
  if (!kDraws || args.is_alone) cudaGridDependencySynchronize();
  take_part<kDraws>(args, bytes);
  if (kDraws && !args.is_alone && blockIdx.x == 0 && blockIdx.y == 0)
    cudaGridDependencySynchronize();
}

/// Tokens of a CTA's part: a multiple of 4, so that parts begin where 16 bytes do.
int part_size_of(int64_t vocab_size) {
  return static_cast<int>((vocab_size + kCtas * 4 - 1) / (kCtas * 4) * 4);
}

/// Launches clusters of `ctas`, one for each row, that may start while the kernel before ends.
void launch_rows(
    const char* what,
    cudaStream_t stream,
    void (*kernel)(Args),
    const Args& args,
    int ctas,
    int64_t rows,
    int shared
) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {static_cast<unsigned int>(ctas), 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned int>(ctas), static_cast<unsigned int>(rows));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(shared);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  ops::cuda::check(cudaLaunchKernelEx(&config, kernel, args), what);
}

template <bool kDraws>
void launch(cudaStream_t stream, const Args& args, int64_t rows) {
  auto* kernel = &draw_kernel<kDraws>;
  const auto memory_of = [](int part_size) {
    return static_cast<int>(sizeof(Memory)) + part_size * 4 + (part_size + 31) / 32 * 4;
  };
  static const int allowed =
      ops::cuda::allow_shared_memory(kernel, memory_of(part_size_of(kMaxVocabulary)));
  static_cast<void>(allowed);
  const char* what = kDraws ? "draw" : "score";
  launch_rows(what, stream, kernel, args, kCtas, rows, memory_of(args.part_size));
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

void enqueue_draws(cudaStream_t stream, const Args& args, int64_t rows) {
  launch_rows("draw: greedy rows", stream, &draw_greedily, args, kCtas, rows, 0);
  launch<true>(stream, args, rows);
}

void enqueue_other_draws(cudaStream_t stream, const Args& args, int64_t rows) {
  launch<true>(stream, args, rows);
}

void draw(cudaStream_t stream, const DrawRows& rows) {
  Args args = args_of(rows.logits, rows.drawn);
  args.slots = rows.slots.data;
  args.rows = rows.rows.data;
  args.counts = true;
  check_vocabulary(args.vocab_size);
  if (rows.rows.dim(0) > 0) enqueue_draws(stream, args, rows.rows.dim(0));
}

void score(cudaStream_t stream, const ScoreRows& rows) {
  Args args = args_of(rows.logits, rows.drawn);
  args.tokens = rows.tokens.data;
  args.tops = rows.tops.data;
  check_vocabulary(args.vocab_size);
  if (rows.tokens.dim(0) > 0) launch<false>(stream, args, rows.tokens.dim(0));
}

}  // namespace di::sampling::cuda
