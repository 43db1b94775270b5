// Random calls of the indexer, on the host for the reference and copied to the device; shared by
// the tests and the benchmark.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "ops/cuda/testing.h"
#include "ops/indexer.h"

namespace di::ops::cuda::testing {

/// A model's indexer.
struct IndexShape {
  int64_t heads;
  int64_t dim;
  int64_t ratio;
  int64_t topk;
  int64_t block_size;  // of candidates
  int64_t blocks;
  int lowest_scale = 122;  // of E8M0 codes; the highest is 125
};

/// One sequence's place in a batch.
struct IndexSequence {
  int64_t start;
  int64_t num_rows;
};

/// A call with everything that it reads. Codes repeat often, so that scores tie.
class RandomIndex {
 public:
  /// `padding` rows that no sequence owns follow; they repeat row 0.
  RandomIndex(
      unsigned seed,
      const IndexShape& shape,
      const std::vector<IndexSequence>& sequences,
      int64_t padding = 0
  )
      : shape_(shape), random_(seed), per_block_(128 / shape.ratio) {
    int64_t length = 0;
    int64_t row = 0;
    for (const IndexSequence& s : sequences)
      length = std::max(length, s.start + s.num_rows);
    blocks_each_ = (length + 127) / 128;
    const auto count = std::ssize(sequences);
    tables_.resize(static_cast<std::size_t>(count * blocks_each_));
    for (std::size_t i = 0; i < tables_.size(); ++i)
      tables_[i] = static_cast<int32_t>(i);
    std::shuffle(tables_.begin(), tables_.end(), random_);
    for (int64_t s = 0; s < count; ++s) {
      const IndexSequence& sequence = sequences[static_cast<std::size_t>(s)];
      sequences_.push_back(
          {.first_row = row,
           .num_rows = sequence.num_rows,
           .start = sequence.start,
           .slot = s,
           .block_table = tables_.data() + s * blocks_each_}
      );
      for (int64_t i = 0; i < sequence.num_rows; ++i) {
        sequence_of_.push_back(static_cast<int32_t>(s));
        positions_.push_back(sequence.start + i);
      }
      row += sequence.num_rows;
    }
    fill(row, length);
    repeat_first_row(padding);
  }

  int64_t rows() const { return std::ssize(positions_); }
  const IndexShape& shape() const { return shape_; }
  std::vector<uint8_t>& q_scales() { return q_scales_; }
  std::vector<uint8_t>& keys() { return keys_; }
  /// Byte of the first scale of entry j of sequence s within keys().
  std::size_t scale_at(int64_t s, int64_t j) const {
    const int64_t block = tables_[static_cast<std::size_t>(s * blocks_each_ + j / per_block_)];
    const int64_t at = per_block_ * shape_.dim / 2 + j % per_block_ * (shape_.dim / 32);
    return static_cast<std::size_t>(block * block_bytes() + at);
  }
  /// Makes all keys the same.
  void repeat_one_key() {
    const auto codes = static_cast<std::size_t>(per_block_ * shape_.dim / 2);
    for (std::size_t i = 0; i < keys_.size(); ++i)
      keys_[i] = i % static_cast<std::size_t>(block_bytes()) < codes ? 0x35 : 124;
  }

  /// The call on the host, without outputs.
  IndexSelect host() const {
    return call(
        q_codes_.data(),
        q_scales_.data(),
        weights_.data(),
        keys_.data(),
        {.sequences = sequences_,
         .sequence_of = View<const int32_t, 1>(sequence_of_.data(), rows()),
         .positions = View<const int64_t, 1>(positions_.data(), rows())}
    );
  }

  /// What the device reads in place of it.
  class OnDevice {
   public:
    explicit OnDevice(const RandomIndex& x)
        : x_(x),
          q_codes_(x.q_codes_),
          q_scales_(x.q_scales_),
          keys_(x.keys_),
          weights_(x.weights_),
          tables_(x.tables_),
          sequence_of_(x.sequence_of_),
          positions_(x.positions_),
          sequences_(sequences_of(x)) {}

    IndexSelect op() const {
      return x_.call(
          q_codes_.data(),
          q_scales_.data(),
          weights_.data(),
          keys_.data(),
          {.sequences = {sequences_.data(), x_.sequences_.size()},
           .sequence_of = View<const int32_t, 1>(sequence_of_.data(), x_.rows()),
           .positions = View<const int64_t, 1>(positions_.data(), x_.rows())}
      );
    }

   private:
    std::vector<SequenceRows> sequences_of(const RandomIndex& x) const {
      std::vector<SequenceRows> sequences = x.sequences_;
      for (std::size_t s = 0; s < sequences.size(); ++s)
        sequences[s].block_table = tables_.data() + static_cast<int64_t>(s) * x.blocks_each_;
      return sequences;
    }

    const RandomIndex& x_;
    DeviceArray<uint8_t> q_codes_, q_scales_, keys_;
    DeviceArray<bf16> weights_;
    DeviceArray<int32_t> tables_, sequence_of_;
    DeviceArray<int64_t> positions_;
    DeviceArray<SequenceRows> sequences_;
  };

 private:
  int64_t block_bytes() const { return per_block_ * (shape_.dim / 2 + shape_.dim / 32); }

  IndexSelect call(
      const uint8_t* q_codes,
      const uint8_t* q_scales,
      const bf16* weights,
      const uint8_t* keys,
      Rows rows
  ) const {
    IndexSelect op;
    rows.max_length = *std::max_element(positions_.begin(), positions_.end()) + 1;
    op.q_codes = View<const uint8_t, 3>(q_codes, rows.count(), shape_.heads, shape_.dim / 2);
    op.q_scales = View<const uint8_t, 3>(q_scales, rows.count(), shape_.heads, shape_.dim / 32);
    op.head_weights = View<const bf16, 2>(weights, rows.count(), shape_.heads);
    op.keys = {
        .base = reinterpret_cast<std::byte*>(const_cast<uint8_t*>(keys)),
        .block_stride = block_bytes(),
        .entries_per_block = per_block_,
        .record_bytes = shape_.dim / 2};
    op.ratio = shape_.ratio;
    op.candidate_block_size = shape_.block_size;
    op.rows = rows;
    return op;
  }

  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  void fill(int64_t rows, int64_t length) {
    const int64_t heads = rows * shape_.heads;
    add_codes(q_codes_, heads);
    add_scales(q_scales_, heads * shape_.dim / 32);
    std::normal_distribution<float> normal(0, 0.1f);
    for (int64_t i = 0; i < heads; ++i)
      weights_.push_back(to_bf16(normal(random_)));
    for (int64_t block = 0; block < std::ssize(sequences_) * ((length + 127) / 128); ++block) {
      add_codes(keys_, per_block_);
      add_scales(keys_, per_block_ * shape_.dim / 32);
    }
  }

  void add_codes(std::vector<uint8_t>& to, int64_t count) {
    const int64_t bytes = shape_.dim / 2;
    for (int64_t i = 0; i < count; ++i) {
      if (i > 0 && integer(0, 3) == 0) {  // as one of the five before
        const auto back = std::min<int64_t>(i, integer(1, 5)) * bytes;
        for (int64_t b = 0; b < bytes; ++b)
          to.push_back(to[to.size() - static_cast<std::size_t>(back)]);
      } else {
        for (int64_t b = 0; b < bytes; b += 4) {
          const uint32_t word = static_cast<uint32_t>(random_());
          for (int shift = 0; shift < 32; shift += 8)
            to.push_back(static_cast<uint8_t>(word >> shift));
        }
      }
      if (integer(0, 5) == 0) {  // a group of zeros of both signs
        std::fill(to.end() - 16, to.end(), integer(0, 1) == 0 ? uint8_t{0x08} : uint8_t{0x80});
      }
    }
  }

  void add_scales(std::vector<uint8_t>& to, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      to.push_back(static_cast<uint8_t>(integer(shape_.lowest_scale, 125)));
  }

  void repeat_first_row(int64_t times) {
    const auto repeat = [&](auto& values, int64_t width) {
      for (int64_t i = 0; i < times * width; ++i)
        values.push_back(values[static_cast<std::size_t>(i % width)]);
    };
    repeat(q_codes_, shape_.heads * shape_.dim / 2);
    repeat(q_scales_, shape_.heads * shape_.dim / 32);
    repeat(weights_, shape_.heads);
    repeat(sequence_of_, 1);
    repeat(positions_, 1);
  }

  IndexShape shape_;
  std::mt19937 random_;
  int64_t per_block_;
  int64_t blocks_each_ = 0;
  std::vector<uint8_t> q_codes_, q_scales_, keys_;
  std::vector<bf16> weights_;
  std::vector<int32_t> tables_, sequence_of_;
  std::vector<int64_t> positions_;
  std::vector<SequenceRows> sequences_;
};

}  // namespace di::ops::cuda::testing
