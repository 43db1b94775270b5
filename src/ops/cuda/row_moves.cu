// Copies and looks, 16 bytes a thread; see row_moves.h. They are bound by memory.
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/row_moves.h"
#include "ops/cuda/shapes.h"
#include "ops/cuda/vectors.cuh"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 256;

struct EmbedArgs {
  bf16* h;
  float* a;
  const bf16* table;
  const bf16* const* given;
  const SequenceRows* sequences;
  const int32_t* sequence_of;
  const int64_t* positions;
  int64_t streams;
  int64_t hidden;
};

__device__ inline const bf16* embedding_of(const EmbedArgs& op, int64_t row) {
  if (op.given != nullptr && op.given[row] != nullptr) return op.given[row];
  const int32_t* tokens = op.sequences[op.sequence_of[row]].tokens;
  return op.table + tokens[op.positions[row]] * op.hidden;
}

/// A block for a row: reads the embedding once and writes every stream.
__global__ void __launch_bounds__(kThreads) embed_kernel(EmbedArgs op) {
  join_kernel_chain();
  const int64_t row = blockIdx.x;
  const bf16* from = embedding_of(op, row);
  bf16* to = op.h + row * op.streams * op.hidden;
  for (int64_t d = threadIdx.x * kVector; d < op.hidden; d += kThreads * kVector) {
    const uint4 vector = load_vector(from + d);
    for (int64_t c = 0; c < op.streams; ++c)
      store_vector(to + c * op.hidden + d, vector);
  }
  if (threadIdx.x < op.streams) {
    op.a[row * op.streams + threadIdx.x] = threadIdx.x == 0 ? 1.0f : 0.0f;
  }
}

/// Row blockIdx.y in words of T.
template <class T>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(CopyRows op, const int64_t* sources, int64_t words) {
  join_kernel_chain();
  const int64_t row = blockIdx.y;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= words) return;
  const int64_t source = sources == nullptr ? row : sources[row];
  const T word = reinterpret_cast<const T*>(op.from + source * op.from_stride)[i];
  reinterpret_cast<T*>(op.to + row * op.to_stride)[i] = word;
}

template <class T>
void launch_copy(Exec& exec, const CopyRows& op, const int64_t* sources) {
  const int64_t words = op.row_bytes / static_cast<int64_t>(sizeof(T));
  const dim3 grid(blocks_of(words, kThreads), static_cast<unsigned int>(op.num_rows));
  launch_overlapped(
      "copy_rows", copy_kernel<T>, grid, kThreads, 0, exec.stream, op, sources, words
  );
}

/// Whether one of a pair's exponents is all ones.
__device__ inline bool is_odd_pair(uint32_t pair) {
  return (pair & 0x7f80u) == 0x7f80u || (pair & 0x7f800000u) == 0x7f800000u;
}

/// A block for a row of streams.
__global__ void __launch_bounds__(kThreads)
    finite_kernel(uint8_t* finite, const bf16* h, int64_t row_size, const int32_t* sequence_of) {
  join_kernel_chain();
  const int64_t row = blockIdx.x;
  const bf16* values = h + row * row_size;
  bool odd = false;
  for (int64_t i = threadIdx.x * kVector; i < row_size; i += kThreads * kVector) {
    const uint4 v = load_vector(values + i);
    odd |= is_odd_pair(v.x) || is_odd_pair(v.y) || is_odd_pair(v.z) || is_odd_pair(v.w);
  }
  if (odd) finite[sequence_of[row]] = 0;
}

}  // namespace

void embed(Exec& exec, const Embed& op) {
  need_multiple("embed: hidden", op.h.dim(2), kVector);
  if (op.h.dim(0) == 0) return;
  const EmbedArgs args{
      .h = op.h.data,
      .a = op.a.data,
      .table = op.table.data,
      .given = op.given.empty() ? nullptr : op.given.data,
      .sequences = op.rows.sequences.data(),
      .sequence_of = op.rows.sequence_of.data,
      .positions = op.rows.positions.data,
      .streams = op.h.dim(1),
      .hidden = op.h.dim(2)};
  const auto rows = static_cast<unsigned int>(op.h.dim(0));
  launch_overlapped("embed", embed_kernel, rows, kThreads, 0, exec.stream, args);
}

void copy_rows(Exec& exec, const CopyRows& op) {
  need_multiple("copy_rows: row_bytes", op.row_bytes, 4);
  need_multiple("copy_rows: to_stride", op.to_stride, 4);
  need_multiple("copy_rows: from_stride", op.from_stride, 4);
  if (op.num_rows == 0 || op.row_bytes == 0) return;
  const int64_t* sources = op.sources.empty() ? nullptr : op.sources.data;
  const auto places = reinterpret_cast<uintptr_t>(op.to) | reinterpret_cast<uintptr_t>(op.from);
  const int64_t sizes = op.row_bytes | op.to_stride | op.from_stride;
  if ((places | static_cast<uintptr_t>(sizes)) % 16 == 0) {
    launch_copy<uint4>(exec, op, sources);
  } else {
    launch_copy<uint32_t>(exec, op, sources);
  }
}

void rows_finite(Exec& exec, const RowsFinite& op) {
  need_multiple("rows_finite: values of a row", op.h.stride(), kVector);
  if (op.h.dim(0) == 0) return;
  launch_overlapped(
      "rows_finite",
      finite_kernel,
      static_cast<unsigned int>(op.h.dim(0)),
      kThreads,
      0,
      exec.stream,
      op.finite.data,
      op.h.data,
      op.h.stride(),
      op.rows.sequence_of.data
  );
}

}  // namespace di::ops::cuda
