// A lane takes eight channels, neighbours share a group's largest magnitude, and records are
// written in words. Copies into the ring run a warp a record.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "ops/cuda/kv_store.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/norm.h"
#include "ops/cuda/rope.cuh"
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

/// The copies of a step's records into the ring: a warp takes a row, block `sequence` · groups + i
/// four of the newest rows of a sequence.
struct StoreArgs {
  RingView ring;
  const uint8_t* records;
  const SequenceRows* sequences;
  int groups;
  int blocks;
};

template <class Word>
__device__ void store_rows(const StoreArgs& op, int block) {
  const RingView& ring = op.ring;
  const SequenceRows sequence = op.sequences[block / op.groups];
  const int64_t skipped =
      sequence.num_rows > ring.length ? sequence.num_rows - ring.length : int64_t{0};
  const int64_t i = skipped + int64_t{block % op.groups} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (i >= sequence.num_rows) return;
  const auto* from =
      reinterpret_cast<const Word*>(op.records + (sequence.first_row + i) * ring.record_bytes);
  auto* to = reinterpret_cast<Word*>(
      ring.base + sequence.slot * ring.slot_stride +
      (sequence.start + i) % ring.length * ring.record_bytes
  );
  const int words = static_cast<int>(ring.record_bytes / static_cast<int64_t>(sizeof(Word)));
  for (int word = static_cast<int>(threadIdx.x) % kWarp; word < words; word += kWarp)
    to[word] = from[word];
}

template <class Word>
__global__ void store_ring(StoreArgs op) {
  join_kernel_chain();
  store_rows<Word>(op, static_cast<int>(blockIdx.x));
}

/// The blocks behind the copies' rotate: so many take a row.
__global__ void __launch_bounds__(kThreads)
    store_ring_and_rotate(StoreArgs op, RopeArgs rope, int shares) {
  extern __shared__ float2 rotations[];
  join_kernel_chain();
  const int block = static_cast<int>(blockIdx.x);
  if (block < op.blocks) return store_rows<uint4>(op, block);
  const int share = block - op.blocks;
  rotate_share<uint4>(rope, share / shares, share % shares, shares, rotations);
}

void check_width(const char* op, int64_t dim, int64_t group) {
  if (dim % group == 0) return;
  throw Error(
      ErrorCode::kUnsupported,
      std::string(op) + ": expected a multiple of " + std::to_string(group) + " channels, found " +
          std::to_string(dim)
  );
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
  if (op.rows.sequences.empty() || rows == 0) return rope(exec, op.rotation);
  const unsigned groups = blocks_of(rows, kThreads / kWarp);
  const StoreArgs args{
      .ring = op.ring,
      .records = op.records.data,
      .sequences = op.rows.sequences.data(),
      .groups = static_cast<int>(groups),
      .blocks = static_cast<int>(groups * op.rows.sequences.size())};
  const auto launch = [&](auto kernel) {
    launch_overlapped(
        "window_store", kernel, static_cast<unsigned>(args.blocks), kThreads, 0, exec.stream, args
    );
  };
  const auto mixed = reinterpret_cast<uintptr_t>(op.ring.base) |
                     reinterpret_cast<uintptr_t>(op.records.data) |
                     static_cast<uintptr_t>(op.ring.slot_stride | op.ring.record_bytes);
  if (mixed % 16 == 0 && !op.rotation.x.empty() && rotates_vectors(op.rotation)) {
    const RopeArgs rotation = rope_args(op.rotation);
    const unsigned shares = shares_of_row(rotation, rotation.heads * rotation.pairs / 4, kThreads);
    launch_overlapped(
        "window_store",
        store_ring_and_rotate,
        static_cast<unsigned>(args.blocks) + shares * static_cast<unsigned>(rotation.rows),
        kThreads,
        rotation_bytes(rotation),
        exec.stream,
        args,
        rotation,
        static_cast<int>(shares)
    );
    return;
  }
  if (mixed % 16 == 0) {
    launch(store_ring<uint4>);
  } else if (mixed % 4 == 0) {
    launch(store_ring<uint32_t>);
  } else {
    launch(store_ring<uint8_t>);
  }
  rope(exec, op.rotation);
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
