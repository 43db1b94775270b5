// The compressor's pooling, and the records and carries that it leaves behind.
#include <cstring>

#include "ops/canonical.h"
#include "ops/ref/ref.h"

namespace di::ops::ref {
namespace {

/// The [kv | score] pair of `position`: from this step's rows, or from the carry when it lies
/// before.
struct TokenRow {
  const float* kv;
  const float* score;
};

TokenRow find_row(const CompressorPool& op, const SequenceRows& sequence, int64_t position) {
  if (position >= sequence.start) {
    const int64_t row = sequence.first_row + position - sequence.start;
    return {op.kv.row(row), op.score.row(row)};
  }
  const auto* carried = reinterpret_cast<const float*>(op.carry.at(sequence.slot, position));
  return {carried, carried + op.latent.dim(1)};
}

/// Softmax over the tokens' scores in one channel (in double, shares rounded once), weighted sum of
/// their values.
float pool_channel(const TokenRow* tokens, int64_t count, int64_t channel) {
  double top = tokens[0].score[channel];
  for (int64_t i = 1; i < count; ++i)
    top = std::max<double>(top, tokens[i].score[channel]);
  double total = 0;
  for (int64_t i = 0; i < count; ++i)
    total += std::exp(tokens[i].score[channel] - top);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto share = static_cast<float>(std::exp(tokens[i].score[channel] - top) / total);
    sum += share * tokens[i].kv[channel];
  }
  return static_cast<float>(sum);
}

}  // namespace

void compressor_pool(const CompressorPool& op, RowRange range) {
  constexpr int64_t kMaxRatio = 16;
  TokenRow tokens[kMaxRatio];
  for (int64_t i = range.begin; i < range.end; ++i) {
    const NewEntry& entry = op.entries[static_cast<std::size_t>(i)];
    if (entry.row < 0) continue;
    const SequenceRows& sequence = op.rows.sequences[static_cast<std::size_t>(entry.sequence)];
    for (int64_t t = 0; t < op.ratio; ++t) {
      tokens[t] = find_row(op, sequence, entry.j * op.ratio + t);
    }
    for (int64_t channel = 0; channel < op.latent.dim(1); ++channel) {
      op.latent(i, channel) = to_bf16(pool_channel(tokens, op.ratio, channel));
    }
  }
}

void carry_store(const CarryStore& op, RowRange range) {
  const auto width = static_cast<std::size_t>(op.kv.dim(1)) * sizeof(float);
  for (int64_t s = range.begin; s < range.end; ++s) {
    const SequenceRows& sequence = op.rows.sequences[static_cast<std::size_t>(s)];
    const int64_t skipped = std::max<int64_t>(0, sequence.num_rows - op.carry.length);
    for (int64_t i = skipped; i < sequence.num_rows; ++i) {
      std::byte* slot = op.carry.at(sequence.slot, sequence.start + i);
      std::memcpy(slot, op.kv.row(sequence.first_row + i), width);
      std::memcpy(slot + width, op.score.row(sequence.first_row + i), width);
    }
  }
}

}  // namespace di::ops::ref
