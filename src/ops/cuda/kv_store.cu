// A lane takes eight channels, neighbours share a group's largest magnitude, and records are
// written in words. Copies into the ring run a warp a record.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "ops/cuda/kv_store.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/vectors.cuh"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarp = 32;

/// Channels [d, d + 8) of a Q8 record; all lanes of a warp call it together.
__device__ void store_q8(const bf16* x, int dim, int d, uint8_t* record, bool active) {
  float values[kVector] = {};
  if (active) unpack(load_vector(x + d), values);
  const Q8Vector q = quantize_q8(values);
  if (!active) return;
  store_words(record + d, {q.codes.x, q.codes.y});
  if (d % 32 == 0) record[dim + d / 32] = q.scale;
}

/// Channels [d, d + 8) of a Q4n record; two lanes share a group.
__device__ void store_q4n(const bf16* x, int dim, int d, uint8_t* record, bool active) {
  float values[kVector] = {};
  if (active) unpack(load_vector(x + d), values);
  float amax = 0;
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    amax = fmaxf(amax, fabsf(values[i]));
  amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, 1));
  if (!active) return;
  const uint8_t scale = q4n_scale(amax);
  const float divisor = decode_e4m3(scale);
  uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    codes |= uint32_t{encode_e2m1(__fdiv_rn(values[i], divisor))} << (4 * i);
  store_words(record + d / 2, {codes});
  if (d % 16 == 0) record[dim / 2 + d / 16] = scale;
}

__global__ void record_rows(
    uint8_t* records, const bf16* kv, int64_t rows, int dim, int64_t record_bytes
) {
  join_kernel_chain();
  const int per_row = dim / kVector;
  const int64_t piece = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t row = piece / per_row;
  const bool active = row < rows;
  const int d = static_cast<int>(piece % per_row) * kVector;
  store_q8(kv + row * dim, dim, d, records + row * record_bytes, active);
}

/// One warp a record, walking over its pieces.
template <KvFormat Format>
__global__ void store_entries(
    PagedView cache,
    const bf16* kv,
    int dim,
    const NewEntry* entries,
    int64_t count,
    const SequenceRows* sequences
) {
  join_kernel_chain();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (i >= count) return;
  const NewEntry entry = entries[i];
  if (entry.row < 0) return;
  const int32_t block = sequences[entry.sequence].block_table[entry.j / cache.entries_per_block];
  auto* record = reinterpret_cast<uint8_t*>(
      cache.base + block * cache.block_stride +
      entry.j % cache.entries_per_block * cache.record_bytes
  );
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int first = 0; first < dim; first += kWarp * kVector) {
    const int d = first + lane * kVector;
    if constexpr (Format == KvFormat::kFp8) {
      store_q8(kv + i * dim, dim, d, record, d < dim);
    } else {
      store_q4n(kv + i * dim, dim, d, record, d < dim);
    }
  }
}

/// One warp a row: block x takes the sequence, block y four of its newest rows.
template <class Word>
__global__ void store_rows(RingView ring, const uint8_t* records, const SequenceRows* sequences) {
  join_kernel_chain();
  const SequenceRows sequence = sequences[blockIdx.x];
  const int64_t skipped =
      sequence.num_rows > ring.length ? sequence.num_rows - ring.length : int64_t{0};
  const int64_t i = skipped + int64_t{blockIdx.y} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (i >= sequence.num_rows) return;
  const auto* from =
      reinterpret_cast<const Word*>(records + (sequence.first_row + i) * ring.record_bytes);
  auto* to = reinterpret_cast<Word*>(
      ring.base + sequence.slot * ring.slot_stride +
      (sequence.start + i) % ring.length * ring.record_bytes
  );
  const int words = static_cast<int>(ring.record_bytes / static_cast<int64_t>(sizeof(Word)));
  for (int word = static_cast<int>(threadIdx.x) % kWarp; word < words; word += kWarp)
    to[word] = from[word];
}

void check_width(const char* op, int64_t dim, int64_t group) {
  if (dim % group == 0) return;
  throw Error(
      ErrorCode::kUnsupported,
      std::string(op) + ": expected a multiple of " + std::to_string(group) + " channels, found " +
          std::to_string(dim)
  );
}

unsigned blocks_of(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace

void window_records(Exec& exec, const WindowRecords& op) {
  const int64_t rows = op.kv.dim(0);
  const int64_t dim = op.kv.dim(1);
  check_width("window_records", dim, 32);
  if (rows == 0) return;
  launch_overlapped(
      "window_records",
      record_rows,
      blocks_of(rows * dim / kVector, kThreads),
      kThreads,
      0,
      exec.stream,
      op.records.data,
      op.kv.data,
      rows,
      static_cast<int>(dim),
      op.records.dim(1)
  );
}

void window_store(Exec& exec, const WindowStore& op) {
  const int64_t rows = std::min(op.rows.longest_run(), op.ring.length);
  if (op.rows.sequences.empty() || rows == 0) return;
  const dim3 grid(
      static_cast<unsigned>(op.rows.sequences.size()), blocks_of(rows, kThreads / kWarp)
  );
  const auto launch = [&]<class Word>(Word) {
    launch_overlapped(
        "window_store",
        store_rows<Word>,
        grid,
        kThreads,
        0,
        exec.stream,
        op.ring,
        op.records.data,
        op.rows.sequences.data()
    );
  };
  const auto mixed = reinterpret_cast<uintptr_t>(op.ring.base) |
                     reinterpret_cast<uintptr_t>(op.records.data) |
                     static_cast<uintptr_t>(op.ring.slot_stride | op.ring.record_bytes);
  if (mixed % 16 == 0) {
    launch(uint4{});
  } else if (mixed % 4 == 0) {
    launch(uint32_t{});
  } else {
    launch(uint8_t{});
  }
}

void compressed_store(Exec& exec, const CompressedStore& op) {
  const int64_t dim = op.kv.dim(1);
  const auto count = static_cast<int64_t>(op.entries.size());
  check_width("compressed_store", dim, op.format == KvFormat::kFp8 ? 32 : 16);
  if (count == 0) return;
  const auto kernel =
      op.format == KvFormat::kFp8 ? store_entries<KvFormat::kFp8> : store_entries<KvFormat::kFp4>;
  launch_overlapped(
      "compressed_store",
      kernel,
      blocks_of(count, kThreads / kWarp),
      kThreads,
      0,
      exec.stream,
      op.cache,
      op.kv.data,
      static_cast<int>(dim),
      op.entries.data(),
      count,
      op.rows.sequences.data()
  );
}

}  // namespace di::ops::cuda
