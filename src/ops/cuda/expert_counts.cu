// A block for a layer: its pairs are counted in shared memory, one atomic each, and the largest
// count is written, and how many are above zero. Integers, so the order does not matter.
#include <string>

#include "base/error.h"
#include "ops/cuda/expert_counts.h"
#include "ops/cuda/launch.h"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 1024;  // and experts at most

/// Rows as the kernel reads them.
struct CountedRows {
  const SequenceRows* sequences;
  const int32_t* sequence_of;
  int rows;
};

struct CountArgs {
  int32_t* busiest;
  int32_t* used;
  const int32_t* ids;
  CountedRows before;  // the border
  CountedRows after;
  int64_t layer_stride;
  int border;
  int k;
  int experts;
};

__global__ void __launch_bounds__(kThreads) count_kernel(CountArgs op) {
  __shared__ int count[kThreads];
  __shared__ int most;
  const int layer = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const CountedRows& set = layer < op.border ? op.before : op.after;
  const int32_t* ids = op.ids + layer * op.layer_stride;
  count[thread] = 0;
  if (thread == 0) most = 0;
  __syncthreads();
  for (int i = thread; i < set.rows * op.k; i += kThreads) {
    const int row = i / op.k;
    const SequenceRows& sequence = set.sequences[set.sequence_of[row]];
    const bool owned = row >= sequence.first_row && row < sequence.first_row + sequence.num_rows;
    const int id = ids[i];
    if (owned && id >= 0 && id < op.experts) atomicAdd(&count[id], 1);
  }
  __syncthreads();
  const int largest = __reduce_max_sync(~0u, count[thread]);
  if (thread % 32 == 0) atomicMax(&most, largest);
  const int used = __syncthreads_count(count[thread] > 0);
  if (thread != 0) return;
  op.busiest[layer] = most;
  op.used[layer] = used;
}

CountedRows counted(const Rows& rows) {
  return {rows.sequences.data(), rows.sequence_of.data, static_cast<int>(rows.count())};
}

}  // namespace

void count_experts(Exec& exec, const ExpertCounts& op) {
  if (op.experts > kThreads) {
    throw Error(
        ErrorCode::kUnsupported,
        "count_experts: expected at most 1024 experts, found " + std::to_string(op.experts)
    );
  }
  const int64_t layers = op.ids.dim(0);
  if (layers == 0) return;
  const CountArgs args{
      .busiest = op.busiest.data,
      .used = op.used.data,
      .ids = op.ids.data,
      .before = counted(op.rows),
      .after = op.border < 0 ? CountedRows() : counted(op.kept),
      .layer_stride = op.ids.dim(1) * op.ids.dim(2),
      .border = static_cast<int>(op.border < 0 ? layers : op.border),
      .k = static_cast<int>(op.ids.dim(2)),
      .experts = static_cast<int>(op.experts)};
  count_kernel<<<static_cast<unsigned>(layers), kThreads, 0, exec.stream>>>(args);
  check_launch("count_experts");
}

}  // namespace di::ops::cuda
