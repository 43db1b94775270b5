// How a kernel takes rows: a cluster a row, launched so that it may start while the kernel before
// ends.
#pragma once

#include "ops/cuda/launch.h"
#include "sampling/cuda/random.cuh"
#include "sampling/cuda/row_work.cuh"

namespace di::sampling::cuda {

inline constexpr int kMaxVocabulary = 1 << 18;

/// What a row needs in the CTA's shared memory; complete behind the next barrier.
__device__ inline void share_params(
    Memory& memory, const SlotParams& params, const RowOrder& order
) {
  if (threadIdx.x != 0) return;
  memory.params = params;
  memory.ahead = order.ahead;
}

/// A draw of the target, with what it is to report.
__device__ inline Task task_of(
    const SlotParams& params, const RowOrder& order, const Results& results
) {
  Task task{.row = order.row, .position = order.position, .place = order.place};
  task.num_outputs = *params.num_outputs + order.ahead.count;
  if (task.num_outputs < params.golden.count) task.token = params.golden.ids[task.num_outputs];
  if (!params.wants_logprobs || results.logprobs == nullptr) return task;
  task.reports_model = !params.processed_logprobs;
  task.reports_processed = params.processed_logprobs;
  task.top = min(params.top_logprobs, static_cast<int64_t>(results.most));
  return task;
}

/// The CTA's part of a row; it lies behind `memory`.
__device__ inline RowPart part_of(const Args& args, Memory& memory) {
  const int begin = static_cast<int>(blockIdx.x) * args.part_size;
  float* logits = reinterpret_cast<float*>(&memory + 1);
  return {
      .logits = logits,
      .bits = reinterpret_cast<uint32_t*>(logits + args.part_size),
      .params = &memory.params,
      .ahead = &memory.ahead,
      .begin = begin,
      .size = max(0, min(args.part_size, args.vocab_size - begin))};
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
