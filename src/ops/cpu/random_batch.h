// Random ragged batches for the tests of the cpu backend: several sequences, prefill chunks and
// single decode rows mixed, each sequence with a history of its own and scattered cache blocks.
#pragma once

#include <random>
#include <vector>

#include "ops/rows.h"
#include "tensor/number_formats.h"

namespace di::ops::cpu {

/// Owns what a Rows views. `seed` decides everything.
class RandomBatch {
 public:
  /// Up to `max_sequences` sequences whose last position is below `max_length`; 128 tokens a block.
  RandomBatch(unsigned seed, int max_sequences, int64_t max_length) : random_(seed) {
    const auto count = static_cast<std::size_t>(integer(1, max_sequences));
    const auto blocks = static_cast<std::size_t>((max_length + 127) / 128);
    num_blocks_ = static_cast<int64_t>(count * blocks);
    std::vector<int32_t> ids(count * blocks);
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<int32_t>(i);
    std::shuffle(ids.begin(), ids.end(), random_);
    int64_t row = 0;
    for (std::size_t s = 0; s < count; ++s) {
      tables_.emplace_back(
          ids.begin() + static_cast<std::ptrdiff_t>(s * blocks),
          ids.begin() + static_cast<std::ptrdiff_t>((s + 1) * blocks)
      );
      const int64_t rows = integer(0, 1) == 0 ? 1 : integer(1, std::min<int64_t>(9, max_length));
      const int64_t start = integer(0, max_length - rows);
      const int64_t begin = integer(0, 2) == 0 ? integer(0, start) : 0;
      sequences_.push_back(
          {.first_row = row,
           .num_rows = rows,
           .start = start,
           .slot = static_cast<int64_t>(count - 1 - s),
           .block_table = tables_.back().data(),
           .window_begin = begin}
      );
      for (int64_t i = 0; i < rows; ++i) {
        sequence_of_.push_back(static_cast<int32_t>(s));
        positions_.push_back(start + i);
      }
      row += rows;
    }
  }

  Rows rows() const {
    const auto count = std::ssize(positions_);
    return {
        .sequences = sequences_,
        .sequence_of = View<const int32_t, 1>(sequence_of_.data(), count),
        .positions = View<const int64_t, 1>(positions_.data(), count)};
  }
  int64_t count() const { return std::ssize(positions_); }
  int64_t num_blocks() const { return num_blocks_; }
  int64_t num_slots() const { return std::ssize(sequences_); }

  /// Uniform in [low, high].
  int64_t integer(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  uint8_t byte() { return static_cast<uint8_t>(integer(0, 255)); }
  float normal(float deviation) { return std::normal_distribution<float>(0, deviation)(random_); }

  std::vector<bf16> bf16s(int64_t count, float deviation) {
    std::vector<bf16> values(static_cast<std::size_t>(count));
    for (bf16& value : values)
      value = to_bf16(normal(deviation));
    return values;
  }
  std::vector<uint8_t> bytes(int64_t count) {
    std::vector<uint8_t> values(static_cast<std::size_t>(count));
    for (uint8_t& value : values)
      value = byte();
    return values;
  }
  /// E4M3 codes that are numbers.
  uint8_t e4m3() {
    const uint8_t code = byte();
    return (code & 0x7f) == 0x7f ? 0 : code;
  }

 private:
  std::mt19937 random_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<SequenceRows> sequences_;
  std::vector<int32_t> sequence_of_;
  std::vector<int64_t> positions_;
  int64_t num_blocks_ = 0;
};

}  // namespace di::ops::cpu
