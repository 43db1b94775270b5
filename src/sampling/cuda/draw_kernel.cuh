// How a kernel takes rows: a cluster a row, launched so that it may start while the kernel before
// ends.
#pragma once

#include "ops/cuda/launch.h"
#include "sampling/cuda/random.cuh"
#include "sampling/cuda/row_work.cuh"

namespace di::sampling::cuda {

inline constexpr int kMaxVocabulary = 1 << 18;

/// CTAs that a processor holds at once, by their registers.
inline constexpr int kCtasAtOnce = 2;

/// A draw of the target, with what it is to report.
__device__ inline Task task_of(
    const SlotParams& params, const RowOrder& order, const Results& results
) {
  Task task{.row = order.row, .place = order.place};
  task.inverse_temperature = fmin(1 / params.temperature, 1e300);
  task.num_outputs = *params.num_outputs + order.ahead.count;
  if (task.num_outputs < params.golden.count) task.token = params.golden.ids[task.num_outputs];
  if (!params.wants_logprobs || results.logprobs == nullptr) return task;
  task.reports_model = !params.processed_logprobs;
  task.reports_processed = params.processed_logprobs;
  task.top = min(params.top_logprobs, static_cast<int64_t>(results.most));
  return task;
}

/// By the lanes of a warp: brings what a draw needs into the CTA's memory.
__device__ inline void tell_draw(
    Memory& memory,
    const SlotParams& params,
    const RowOrder& order,
    const Results& results,
    int lane
) {
  static_assert(sizeof(SlotParams) % sizeof(uint64_t) == 0);
  constexpr int kWords = sizeof(SlotParams) / sizeof(uint64_t);
  const auto* from = reinterpret_cast<const uint64_t*>(&params);
  for (int i = lane; i < kWords; i += 32)
    reinterpret_cast<uint64_t*>(&memory.params)[i] = from[i];
  __syncwarp();
  if (lane != 0) return;
  memory.ahead = order.ahead;
  memory.task = task_of(memory.params, order, results);
}

/// The CTA's part of a row; it lies behind `memory`.
__device__ inline RowPart part_of(const Args& args, Memory& memory, int row) {
  const int begin = min(static_cast<int>(blockIdx.x) * args.part_size, args.vocab_size);
  float* logits = reinterpret_cast<float*>(&memory + 1);
  return {
      .given = args.logits + static_cast<int64_t>(row) * args.vocab_size + begin,
      .logits = logits,
      .bits = reinterpret_cast<uint32_t*>(logits + args.part_size),
      .params = &memory.params,
      .ahead = &memory.ahead,
      .begin = begin,
      .size = min(args.part_size, args.vocab_size - begin)};
}

/// Tokens of a CTA's part: a multiple of 4, so that parts begin where 16 bytes do.
inline int part_size_of(int64_t vocab_size) {
  return static_cast<int>((vocab_size + kCtas * 4 - 1) / (kCtas * 4) * 4);
}

/// Launches clusters of kCtas, one for each row, with so much shared memory.
inline void launch_rows(
    const char* what,
    cudaStream_t stream,
    void (*kernel)(Args),
    const Args& args,
    int64_t rows,
    int shared
) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {kCtas, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kCtas, static_cast<unsigned int>(rows));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(shared);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  ops::cuda::check(cudaLaunchKernelEx(&config, kernel, args), what);
}

/// The same with the memory that a row takes.
template <auto kKernel>
void launch_row_kernel(const char* what, cudaStream_t stream, const Args& args, int64_t rows) {
  const auto memory_of = [](int part_size) {
    return static_cast<int>(sizeof(Memory)) + part_size * 4 + (part_size + 31) / 32 * 4;
  };
  static const int allowed =
      ops::cuda::allow_shared_memory(kKernel, memory_of(part_size_of(kMaxVocabulary)));
  static_cast<void>(allowed);
  if (rows > 0) launch_rows(what, stream, kKernel, args, rows, memory_of(args.part_size));
}

}  // namespace di::sampling::cuda
