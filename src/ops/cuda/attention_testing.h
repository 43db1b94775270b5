// Random calls of sparse attention, on the host for the reference and copied to the device; shared
// by the tests and the benchmark.
#pragma once

#include <cmath>
#include <memory>

#include "ops/attention.h"
#include "ops/cpu/random_batch.h"
#include "ops/cuda/testing.h"

namespace di::ops::cuda::testing {

/// A model's attention.
struct AttentionShape {
  int64_t heads;
  int64_t dim;
  int64_t window;
  int64_t selected;
  int64_t ratio;  // 0: no compressed part
  KvFormat format;
};

/// `count` records whose codes are numbers and whose scales are ordinary.
inline std::vector<uint8_t> random_records(
    cpu::RandomBatch& random, int64_t count, KvFormat format, int64_t dim
) {
  const int64_t codes = format == KvFormat::kFp8 ? dim : dim / 2;
  const int64_t bytes = kv_record_bytes(format, dim);
  std::vector<uint8_t> all(static_cast<std::size_t>(count * bytes));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool is_scale = static_cast<int64_t>(i) % bytes >= codes;
    if (format == KvFormat::kFp8) {
      all[i] = is_scale ? static_cast<uint8_t>(random.integer(116, 122)) : random.e4m3();
    } else {
      all[i] = is_scale ? static_cast<uint8_t>(random.integer(0, 64)) : random.byte();
    }
  }
  return all;
}

/// The sequences of `rows` with their block tables, on the device.
class DeviceRows {
 public:
  DeviceRows(const Rows& rows, int64_t blocks_each)
      : sequence_of_(std::span(rows.sequence_of.data, rows.count())),
        positions_(std::span(rows.positions.data, rows.count())),
        tables_(blocks_each * std::ssize(rows.sequences)),
        sequences_(std::ssize(rows.sequences)) {
    std::vector<SequenceRows> sequences(rows.sequences.begin(), rows.sequences.end());
    std::vector<int32_t> tables;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      const int32_t* table = sequences[s].block_table;
      tables.insert(tables.end(), table, table + blocks_each);
      sequences[s].block_table = tables_.data() + static_cast<int64_t>(s) * blocks_each;
    }
    const std::size_t bytes = sequences.size() * sizeof(SequenceRows);
    copy_now(sequences_.data(), sequences.data(), bytes);
    copy_now(tables_.data(), tables.data(), tables.size() * 4);
  }

  Rows rows() const {
    return {
        .sequences = {sequences_.data(), static_cast<std::size_t>(sequences_.size())},
        .sequence_of = View<const int32_t, 1>(sequence_of_.data(), sequence_of_.size()),
        .positions = View<const int64_t, 1>(positions_.data(), positions_.size())};
  }

 private:
  DeviceArray<int32_t> sequence_of_;
  DeviceArray<int64_t> positions_;
  DeviceArray<int32_t> tables_;
  DeviceArray<SequenceRows> sequences_;
};

/// A random call with all that it views.
class RandomAttention {
 public:
  RandomAttention(unsigned seed, const AttentionShape& shape, int max_sequences = 4)
      : shape_(shape),
        max_length_(3 * shape.window + 40),
        batch_(seed, max_sequences, max_length_) {
    const int64_t rows = batch_.count();
    const int64_t window_bytes = kv_record_bytes(KvFormat::kFp8, shape.dim);
    const int64_t ring_length = shape.window + 6;
    window_ = random_records(batch_, rows, KvFormat::kFp8, shape.dim);
    ring_ = random_records(batch_, batch_.num_slots() * ring_length, KvFormat::kFp8, shape.dim);
    q_ = batch_.bf16s(rows * shape.heads * shape.dim, 1.0f);
    for (int64_t head = 0; head < shape.heads; ++head)
      sink_.push_back(batch_.normal(4.0f));
    op_.q = View<const bf16, 3>(q_.data(), rows, shape.heads, shape.dim);
    op_.window_records = View<const uint8_t, 2>(window_.data(), rows, window_bytes);
    op_.ring = {
        .base = reinterpret_cast<std::byte*>(ring_.data()),
        .slot_stride = ring_length * window_bytes,
        .length = ring_length,
        .record_bytes = window_bytes};
    op_.window = shape.window;
    op_.sink = View<const float, 1>(sink_.data(), shape.heads);
    op_.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.dim)));
    op_.rows = batch_.rows();
    if (shape.ratio > 0) add_compressed();
  }
  RandomAttention(const RandomAttention&) = delete;

  const SparseAttention& op() const { return op_; }
  cpu::RandomBatch& batch() { return batch_; }
  int64_t blocks_each() const { return (max_length_ + 127) / 128; }
  std::vector<bf16>& q() { return q_; }
  std::vector<uint8_t>& window() { return window_; }
  const std::vector<uint8_t>& ring() const { return ring_; }
  const std::vector<uint8_t>& compressed() const { return compressed_; }

 private:
  void add_compressed() {
    const int64_t per_block = 128 / shape_.ratio;
    const int64_t bytes = kv_record_bytes(shape_.format, shape_.dim);
    compressed_ =
        random_records(batch_, batch_.num_blocks() * per_block, shape_.format, shape_.dim);
    op_.compressed = {
        .base = reinterpret_cast<std::byte*>(compressed_.data()),
        .block_stride = per_block * bytes,
        .entries_per_block = per_block,
        .record_bytes = bytes};
    op_.format = shape_.format;
    for (int64_t row = 0; row < batch_.count(); ++row)
      select((op_.rows.positions(row) + 1) / shape_.ratio);
    op_.selected = View<const int32_t, 2>(selected_.data(), batch_.count(), shape_.selected);
  }

  /// Ascending entries, mostly without holes; now and then with holes, or none at all.
  void select(int64_t visible) {
    const int64_t kind = batch_.integer(0, 5);
    int64_t j = 0;
    for (int64_t i = 0; i < shape_.selected; ++i) {
      const bool hole = kind == 0 || (kind == 1 && (i < 70 || batch_.integer(0, 3) == 0));
      if (j < visible && !hole) {
        selected_.push_back(static_cast<int32_t>(j));
        j += batch_.integer(1, 4) == 1 ? 2 : 1;
      } else {
        selected_.push_back(-1);
      }
    }
  }

  AttentionShape shape_;
  int64_t max_length_;
  cpu::RandomBatch batch_;
  SparseAttention op_{};
  std::vector<uint8_t> window_, ring_, compressed_;
  std::vector<bf16> q_;
  std::vector<float> sink_;
  std::vector<int32_t> selected_;
};

/// Its copy on the device.
class DeviceAttention {
 public:
  explicit DeviceAttention(RandomAttention& random)
      : q_(random.q()),
        o_(std::ssize(random.q())),
        window_(random.window()),
        ring_(random.ring()),
        compressed_(random.compressed()),
        selected_(std::span(random.op().selected.data, random.op().selected.size())),
        sink_(std::span(random.op().sink.data, random.op().sink.size())),
        rows_(random.op().rows, random.blocks_each()),
        op_(random.op()) {
    o_.poison();
    op_.o.data = o_.data();
    for (int d = 0; d < 3; ++d)
      op_.o.dims[d] = op_.q.dims[d];
    op_.q.data = q_.data();
    op_.window_records.data = window_.data();
    op_.ring.base = reinterpret_cast<std::byte*>(ring_.data());
    op_.compressed.base = reinterpret_cast<std::byte*>(compressed_.data());
    op_.selected.data = selected_.data();
    op_.sink.data = sink_.data();
    op_.rows = rows_.rows();
  }

  const SparseAttention& op() const { return op_; }
  std::vector<bf16> output() const { return o_.read(); }

 private:
  DeviceArray<bf16> q_, o_;
  DeviceArray<uint8_t> window_, ring_, compressed_;
  DeviceArray<int32_t> selected_;
  DeviceArray<float> sink_;
  DeviceRows rows_;
  SparseAttention op_;
};

}  // namespace di::ops::cuda::testing
