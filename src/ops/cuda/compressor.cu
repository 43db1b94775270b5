// A block takes an entry and 128 channels of it, or a row and its two halves. Scores and values lie
// in the same order, so every access is contiguous.
#include <algorithm>

#include "ops/cuda/compressor.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/number_formats.cuh"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 128;

/// CompressorPool without what only the host can call.
struct PoolCall {
  bf16* latent;        // [entries, dim]
  const float* kv;     // [rows, dim]
  const float* score;  // [rows, dim]
  CarryView carry;
  int ratio;
  int dim;
  const NewEntry* entries;
  const SequenceRows* sequences;
};

/// The [kv | score] pair of `position`: of this step's rows, or from the carry when it lies before.
struct TokenRow {
  const float* kv;
  const float* score;
};

__device__ TokenRow find_row(const PoolCall& call, const SequenceRows& sequence, int64_t position) {
  if (position >= sequence.start) {
    const int64_t row = sequence.first_row + position - sequence.start;
    return {call.kv + row * call.dim, call.score + row * call.dim};
  }
  const auto* carried = reinterpret_cast<const float*>(
      call.carry.base + sequence.slot * call.carry.slot_stride +
      position % call.carry.length * call.carry.record_bytes
  );
  return {carried, carried + call.dim};
}

/// Softmax over the tokens' scores in double, shares rounded once; weighted sum of their values.
/// Whatever the number of tokens, the arithmetic is one; a known number keeps the exponentials in
/// registers, 0 stands for any other and takes them twice.
template <int kCount, class Token>
__device__ float pool_channel(const Token& token, int count, int channel) {
  if constexpr (kCount > 0) count = kCount;
  double top = token(0).score[channel];
  for (int t = 1; t < count; ++t) {
    const double score = token(t).score[channel];
    top = top < score ? score : top;
  }
  double exponentials[kCount > 0 ? kCount : 1];
  const auto exponential = [&](int t) { return exp(token(t).score[channel] - top); };
  double total = 0;
#pragma unroll(kCount > 0 ? kCount : 1)
  for (int t = 0; t < count; ++t) {
    const double e = exponential(t);
    if constexpr (kCount > 0) exponentials[t] = e;
    total += e;
  }
  double sum = 0;
#pragma unroll(kCount > 0 ? kCount : 1)
  for (int t = 0; t < count; ++t) {
    double e = 0;
    if constexpr (kCount > 0) {
      e = exponentials[t];
    } else {
      e = exponential(t);
    }
    const auto share = static_cast<float>(e / total);
    sum += share * token(t).kv[channel];
  }
  return static_cast<float>(sum);
}

/// Block x takes the entry, block y 128 of its channels.
template <int kRatio>
__global__ void pool_entries(PoolCall call) {
  join_kernel_chain();
  const NewEntry entry = call.entries[blockIdx.x];
  const int channel = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  if (entry.row < 0 || channel >= call.dim) return;
  const SequenceRows sequence = call.sequences[entry.sequence];
  const auto token = [&](int t) { return find_row(call, sequence, entry.j * call.ratio + t); };
  call.latent[int64_t{blockIdx.x} * call.dim + channel] =
      to_bf16(pool_channel<kRatio>(token, call.ratio, channel));
}

/// Block x takes the sequence, block y one of its newest rows; its threads walk over kv and score.
__global__ void store_carry(
    CarryView carry, const uint4* kv, const uint4* score, int pieces, const SequenceRows* sequences
) {
  join_kernel_chain();
  const SequenceRows sequence = sequences[blockIdx.x];
  const int64_t skipped = max(sequence.num_rows - carry.length, int64_t{0});
  const int64_t i = skipped + blockIdx.y;
  if (i >= sequence.num_rows) return;
  auto* to = reinterpret_cast<uint4*>(
      carry.base + sequence.slot * carry.slot_stride +
      (sequence.start + i) % carry.length * carry.record_bytes
  );
  const int64_t from = (sequence.first_row + i) * pieces;
  for (int piece = static_cast<int>(threadIdx.x); piece < pieces; piece += kThreads) {
    to[piece] = kv[from + piece];
    to[pieces + piece] = score[from + piece];
  }
}

}  // namespace

void compressor_pool(Exec& exec, const CompressorPool& op) {
  const auto entries = std::ssize(op.entries);
  if (entries == 0) return;
  const PoolCall call{
      .latent = op.latent.data,
      .kv = op.kv.data,
      .score = op.score.data,
      .carry = op.carry,
      .ratio = static_cast<int>(op.ratio),
      .dim = static_cast<int>(op.latent.dim(1)),
      .entries = op.entries.data(),
      .sequences = op.rows.sequences.data()};
  const dim3 grid(static_cast<unsigned int>(entries), blocks_of(op.latent.dim(1), kThreads));
  const auto kernel = op.ratio == 2 ? pool_entries<2> : pool_entries<0>;
  launch_overlapped("compressor_pool", kernel, grid, kThreads, 0, exec.stream, call);
}

void carry_store(Exec& exec, const CarryStore& op) {
  const auto sequences = std::ssize(op.rows.sequences);
  const int64_t newest = std::min(op.carry.length, op.rows.longest_run());
  if (sequences == 0 || newest == 0) return;
  need_multiple("the width of a carry", op.kv.dim(1), 4);
  need_multiple("the bytes of a carry's row", op.carry.record_bytes, 16);
  const dim3 grid(static_cast<unsigned int>(sequences), static_cast<unsigned int>(newest));
  launch_overlapped(
      "carry_store",
      store_carry,
      grid,
      kThreads,
      0,
      exec.stream,
      op.carry,
      reinterpret_cast<const uint4*>(op.kv.data),
      reinterpret_cast<const uint4*>(op.score.data),
      static_cast<int>(op.kv.dim(1) / 4),
      op.rows.sequences.data()
  );
}

}  // namespace di::ops::cuda
