// Chooses the kernel of a shape and launches it. The choice among kernels that differ in bits
// depends on heads, channels and list length, never on the number of rows.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "ops/cuda/attention.h"
#include "ops/cuda/attention_general.cuh"
#include "ops/cuda/attention_rows.cuh"
#include "ops/cuda/attention_split.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_overlapped.cuh"

namespace di::ops::cuda {
namespace {

[[noreturn]] void refuse(const char* expected, int64_t found) {
  throw Error(
      ErrorCode::kUnsupported,
      std::string("sparse_attention: expected ") + expected + ", found " + std::to_string(found)
  );
}

AttentionCall call_of(const SparseAttention& op) {
  const bool compressed = op.compressed.base != nullptr;
  return {
      .o = op.o.data,
      .q = op.q.data,
      .window_records = op.window_records.data,
      .ring = op.ring,
      .window = static_cast<int>(op.window),
      .block = static_cast<int>(op.block),
      .compressed = op.compressed,
      .fp8 = op.format == KvFormat::kFp8,
      .selected = op.selected.data,
      .num_selected = compressed ? static_cast<int>(op.selected.dim(1)) : 0,
      .sink = op.sink.data,
      .scale = op.scale,
      .sequences = op.rows.sequences.data(),
      .sequence_of = op.rows.sequence_of.data,
      .positions = op.rows.positions.data,
      .rows = static_cast<int>(op.q.dim(0)),
      .heads = static_cast<int>(op.q.dim(1)),
      .dim = static_cast<int>(op.q.dim(2))};
}

void launch_general(const AttentionCall& call, cudaStream_t stream) {
  static const int allowed =
      allow_shared_memory(general::attention, general::shared_bytes(general::kMaxDim));
  static_cast<void>(allowed);
  const dim3 grid(
      static_cast<unsigned>(call.rows),
      static_cast<unsigned>((call.heads + general::kHeads - 1) / general::kHeads)
  );
  general::attention<<<grid, general::kThreads, general::shared_bytes(call.dim), stream>>>(call);
  check_launch("sparse_attention");
}

constexpr int kMaxSharedBytes = 227 * 1024;

/// Whether the kernels for records of 512 channels take the call. A matter of the model's shape.
bool fits_tiles(const AttentionCall& call) {
  return call.dim == kTileDim && call.heads <= kTileRows &&
         rows::shared_bytes(call) <= kMaxSharedBytes;
}

void launch_rows(const AttentionCall& call, cudaStream_t stream) {
  static const int allowed = allow_shared_memory(rows::attention, kMaxSharedBytes);
  static_cast<void>(allowed);
  const int blocks = std::min(call.rows, num_sms());
  launch_overlapped(
      "sparse_attention",
      rows::attention,
      dim3(static_cast<unsigned>(blocks)),
      rows::kThreads,
      rows::shared_bytes(call),
      stream,
      call
  );
}

/// An H200 runs 15 clusters of eight blocks at once, or 31 of four.
constexpr int kFewestRows = 15;
constexpr int kFewRows = 31;

/// Whether splitting a row among blocks pays. The bits are the same either way.
bool is_few(const AttentionCall& call) {
  return call.rounded_slots() <= split::kMaxKeys && call.rows <= kFewRows;
}

template <int kCluster>
void launch_split(Exec& exec, const AttentionCall& call, cudaStream_t stream) {
  static_assert(sizeof(split::Shared<kCluster>) + 1024 <= kMaxSharedBytes);
  static const int allowed = allow_shared_memory(
      split::attention<kCluster>, static_cast<int>(sizeof(split::Shared<kCluster>)) + 1024
  );
  const Arena::Scope scope(exec.scratch);
  auto* weights = exec.scratch.take<split::RowWeights>(call.rows);
  launch_clusters_overlapped(
      "sparse_attention",
      split::attention<kCluster>,
      dim3(static_cast<unsigned>(call.rows * kCluster)),
      kCluster,
      split::kThreads,
      allowed,
      stream,
      call,
      weights
  );
}

void check_shape(const SparseAttention& op) {
  if (op.q.dim(2) % 32 != 0) refuse("a multiple of 32 channels", op.q.dim(2));
  if (op.q.dim(2) > general::kMaxDim) refuse("at most 512 channels", op.q.dim(2));
}

}  // namespace

void canonical::sparse_attention(Exec& exec, const SparseAttention& op) {
  check_shape(op);
  if (!op.q.empty()) launch_general(call_of(op), exec.stream);
}

void sparse_attention(Exec& exec, const SparseAttention& op) {
  check_shape(op);
  if (op.q.empty()) return;
  const AttentionCall call = call_of(op);
  const auto stream = static_cast<cudaStream_t>(exec.stream);
  if (!fits_tiles(call)) {
    launch_general(call, stream);
  } else if (is_few(call)) {
    call.rows <= kFewestRows ? launch_split<8>(exec, call, stream)
                             : launch_split<4>(exec, call, stream);
  } else {
    launch_rows(call, stream);
  }
}

}  // namespace di::ops::cuda
