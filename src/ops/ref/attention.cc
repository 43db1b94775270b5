// Window and sparse attention over quantised records, one row and head after another.
#include <cstring>
#include <vector>

#include "ops/canonical.h"
#include "ops/ref/ref.h"

namespace di::ops {

int64_t kv_record_bytes(KvFormat format, int64_t dim) {
  return format == KvFormat::kFp8 ? dim + dim / 32 : dim / 2 + dim / 16;
}

namespace ref {
namespace {

constexpr int64_t kBlock = 64;  // list entries that share one running maximum

/// Dequantises one record into `dim` values, exactly.
void decode_record(const uint8_t* record, KvFormat format, int64_t dim, float* value) {
  const bool fp8 = format == KvFormat::kFp8;
  const uint8_t* scales = record + (fp8 ? dim : dim / 2);
  for (int64_t d = 0; d < dim; ++d) {
    value[d] = fp8 ? decode_e4m3(record[d]) * decode_e8m0(scales[d / 32])
                   : decode_e2m1(nibble(record, d)) * decode_e4m3(scales[d / 16]);
  }
}

/// Flash-style running softmax of one head over blocks of the list.
class HeadSoftmax {
 public:
  HeadSoftmax(const bf16* q, int64_t dim, float scale)
      : q_(q), scale_(scale), sum_(static_cast<std::size_t>(dim)) {}

  /// One block: `count` decoded keys of `dim` values.
  void add_block(const float* keys, int64_t count) {
    const auto dim = static_cast<int64_t>(sum_.size());
    float logits[kBlock];
    float top = top_;
    for (int64_t i = 0; i < count; ++i) {
      double dot = 0;
      for (int64_t d = 0; d < dim; ++d) {
        dot += static_cast<double>(to_float(q_[d])) * keys[i * dim + d];
      }
      logits[i] = static_cast<float>(dot) * scale_;
      top = std::max(top, logits[i]);
    }
    const float decay = exp_f32(top_ - top);
    top_ = top;
    double total = 0;
    for (int64_t i = 0; i < count; ++i) {
      const float p = exp_f32(logits[i] - top);
      total += p;
      logits[i] = round_bf16(p);
    }
    denominator_ = denominator_ * decay + static_cast<float>(total);
    for (int64_t d = 0; d < dim; ++d) {
      double mixed = 0;
      for (int64_t i = 0; i < count; ++i) {
        mixed += static_cast<double>(logits[i]) * keys[i * dim + d];
      }
      float& sum = sum_[static_cast<std::size_t>(d)];
      sum = sum * decay + static_cast<float>(mixed);
    }
  }

  /// Adds the sink to the denominator and writes the output row.
  void finish(float sink, bf16* o) const {
    const float denominator = denominator_ + exp_f32(sink - top_);
    for (std::size_t d = 0; d < sum_.size(); ++d)
      o[d] = to_bf16(sum_[d] / denominator);
  }

 private:
  const bf16* q_;
  float scale_;
  float top_ = -1e30f;
  float denominator_ = 0;
  std::vector<float> sum_;
};

}  // namespace

std::vector<AttentionEntry> list_attention_entries(const SparseAttention& op, int64_t row) {
  const SequenceRows& sequence =
      op.rows.sequences[static_cast<std::size_t>(op.rows.sequence_of(row))];
  const int64_t end = op.block > 0 ? sequence.start + op.block : op.rows.positions(row) + 1;
  const int64_t begin = (op.block > 0 ? sequence.start : end) - op.window;
  std::vector<AttentionEntry> list;
  for (int64_t p = std::max({begin, sequence.window_begin, int64_t{0}}); p < end; ++p) {
    const auto* record = p >= sequence.start
                             ? op.window_records.row(sequence.first_row + p - sequence.start)
                             : reinterpret_cast<const uint8_t*>(op.ring.at(sequence.slot, p));
    list.push_back({record, KvFormat::kFp8});
  }
  if (op.compressed.base == nullptr) return list;
  for (int64_t i = 0; i < op.selected.dim(1); ++i) {
    const int32_t j = op.selected(row, i);
    const auto* record =
        j < 0 ? nullptr
              : reinterpret_cast<const uint8_t*>(op.compressed.record(sequence.block_table, j));
    list.push_back({record, op.format});
  }
  return list;
}

void sparse_attention(const SparseAttention& op, RowRange range) {
  const int64_t dim = op.q.dim(2);
  std::vector<float> keys(static_cast<std::size_t>(kBlock * dim));
  for (int64_t row = range.begin; row < range.end; ++row) {
    const std::vector<AttentionEntry> list = list_attention_entries(op, row);
    std::vector<HeadSoftmax> heads;
    for (int64_t head = 0; head < op.q.dim(1); ++head) {
      heads.emplace_back(&op.q(row, head, 0), dim, op.scale);
    }
    bool any = false;
    for (std::size_t first = 0; first < list.size(); first += kBlock) {
      int64_t count = 0;
      for (std::size_t i = first; i < std::min(list.size(), first + kBlock); ++i) {
        if (list[i].record == nullptr) continue;
        decode_record(list[i].record, list[i].format, dim, keys.data() + count++ * dim);
      }
      if (count == 0) continue;
      any = true;
      for (HeadSoftmax& head : heads)
        head.add_block(keys.data(), count);
    }
    for (int64_t head = 0; head < op.q.dim(1); ++head) {
      bf16* o = &op.o(row, head, 0);
      if (any) {
        heads[static_cast<std::size_t>(head)].finish(op.sink(head), o);
      } else {
        std::fill_n(o, dim, bf16{0});
      }
    }
  }
}

void window_records(const WindowRecords& op, RowRange range) {
  const int64_t dim = op.kv.dim(1);
  for (int64_t row = range.begin; row < range.end; ++row) {
    uint8_t* record = op.records.row(row);
    for (int64_t group = 0; group < dim / 32; ++group) {
      record[dim + group] = quantize_q8_group(op.kv.row(row) + group * 32, 32, record + group * 32);
    }
  }
}

void window_keys(const WindowKeys& op, RowRange range) {
  if (!op.query.x.empty()) rms_norm(op.query, range);
  rms_norm({.y = op.kv, .x = op.kv, .weight = op.norm, .eps = op.eps}, range);
  const View<bf16, 3> heads(op.kv.data, op.kv.dim(0), 1, op.kv.dim(1));
  rope({.x = heads, .positions = op.positions, .frequencies = op.frequencies}, range);
  window_records({.records = op.records, .kv = op.kv}, range);
}

void window_store(const WindowStore& op, RowRange range) {
  for (int64_t s = range.begin; s < range.end; ++s) {
    const SequenceRows& sequence = op.rows.sequences[static_cast<std::size_t>(s)];
    const int64_t skipped = std::max<int64_t>(0, sequence.num_rows - op.ring.length);
    for (int64_t i = skipped; i < sequence.num_rows; ++i) {
      std::memcpy(
          op.ring.at(sequence.slot, sequence.start + i),
          op.records.row(sequence.first_row + i),
          static_cast<std::size_t>(op.ring.record_bytes)
      );
    }
  }
}

void compressed_store(const CompressedStore& op, RowRange range) {
  const int64_t dim = op.kv.dim(1);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const NewEntry& entry = op.entries[static_cast<std::size_t>(i)];
    if (entry.row < 0) continue;
    const SequenceRows& sequence = op.rows.sequences[static_cast<std::size_t>(entry.sequence)];
    auto* record = reinterpret_cast<uint8_t*>(op.cache.record(sequence.block_table, entry.j));
    if (op.format == KvFormat::kFp8) {
      for (int64_t group = 0; group < dim / 32; ++group) {
        record[dim + group] = quantize_q8_group(op.kv.row(i) + group * 32, 32, record + group * 32);
      }
    } else {
      for (int64_t group = 0; group < dim / 16; ++group) {
        record[dim / 2 + group] = quantize_q4n_group(op.kv.row(i) + group * 16, record + group * 8);
      }
    }
  }
}

}  // namespace ref
}  // namespace di::ops
