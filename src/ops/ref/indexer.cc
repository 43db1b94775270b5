// Index keys, scores of compressed entries, and the selection of the best.
#include <cstring>
#include <limits>
#include <vector>

#include "ops/canonical.h"
#include "ops/ref/ref.h"

namespace di::ops::ref {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

double dot_mxfp4(
    const uint8_t* a, const uint8_t* sa, const uint8_t* b, const uint8_t* sb, int64_t dim
) {
  double sum = 0;
  for (int64_t d = 0; d < dim; ++d) {
    const double x = static_cast<double>(decode_e2m1(nibble(a, d))) * decode_e8m0(sa[d / 32]);
    const double y = static_cast<double>(decode_e2m1(nibble(b, d))) * decode_e8m0(sb[d / 32]);
    sum += x * y;
  }
  return sum;
}

}  // namespace

IndexKey index_key(const PagedView& keys, const int32_t* block_table, int64_t j) {
  auto* section = reinterpret_cast<uint8_t*>(keys.section(block_table, j));
  const int64_t at = j % keys.entries_per_block;
  const int64_t scale_bytes = keys.record_bytes / 16;
  return {
      section + at * keys.record_bytes,
      section + keys.entries_per_block * keys.record_bytes + at * scale_bytes};
}

float index_score(const IndexSelect& op, int64_t row, const int32_t* block_table, int64_t j) {
  const IndexKey key = index_key(op.keys, block_table, j);
  double sum = 0;
  for (int64_t head = 0; head < op.q_codes.dim(1); ++head) {
    const double dot = dot_mxfp4(
        &op.q_codes(row, head, 0),
        &op.q_scales(row, head, 0),
        key.codes,
        key.scales,
        op.q_codes.dim(2) * 2
    );
    const float positive = std::max(round_bf16(static_cast<float>(dot)), 0.0f);
    sum += round_bf16(positive * to_float(op.head_weights(row, head)));
  }
  return round_bf16(static_cast<float>(sum));
}

namespace {

/// Writes the `width` best positions with a score above −∞ in ascending order, −1 behind them.
void select_best(const std::vector<float>& scores, int32_t* best, int64_t width) {
  std::vector<int32_t> order;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    if (scores[j] > kHidden) order.push_back(static_cast<int32_t>(j));
  }
  const auto better = [&](int32_t a, int32_t b) {
    const float sa = scores[static_cast<std::size_t>(a)];
    const float sb = scores[static_cast<std::size_t>(b)];
    return sa != sb ? sa > sb : a < b;
  };
  const auto kept = std::min<std::ptrdiff_t>(width, std::ssize(order));
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), better);
  std::sort(order.begin(), order.begin() + kept);
  std::fill(std::copy_n(order.begin(), kept, best), best + width, -1);
}

/// The candidate source's blocks: by their best score, the newest block always first.
void select_candidates(const IndexSelect& op, int64_t row, const std::vector<float>& scores) {
  const auto visible = static_cast<int64_t>(scores.size());
  std::vector<float> blocks(
      static_cast<std::size_t>((visible + op.candidate_block_size - 1) / op.candidate_block_size),
      kHidden
  );
  for (int64_t j = 0; j < visible; ++j) {
    float& block = blocks[static_cast<std::size_t>(j / op.candidate_block_size)];
    block = std::max(block, scores[static_cast<std::size_t>(j)]);
  }
  if (!blocks.empty()) blocks.back() = std::numeric_limits<float>::infinity();
  select_best(blocks, op.candidates_out.row(row), op.candidates_out.dim(1));
}

std::vector<float> score_row(const IndexSelect& op, int64_t row) {
  const SequenceRows& sequence =
      op.rows.sequences[static_cast<std::size_t>(op.rows.sequence_of(row))];
  const int64_t visible = (op.rows.positions(row) + 1) / op.ratio;
  std::vector<float> scores(static_cast<std::size_t>(visible), kHidden);
  const auto score_range = [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < std::min(end, visible); ++j) {
      scores[static_cast<std::size_t>(j)] = index_score(op, row, sequence.block_table, j);
    }
  };
  if (op.candidates_in.empty()) {
    score_range(0, visible);
    return scores;
  }
  for (int64_t i = 0; i < op.candidates_in.dim(1); ++i) {
    const int64_t block = op.candidates_in(row, i);
    if (block < 0) break;
    score_range(block * op.candidate_block_size, (block + 1) * op.candidate_block_size);
  }
  return scores;
}

}  // namespace

void quantize_mxfp4(const QuantizeMxFp4& op, RowRange range) {
  for (int64_t row = range.begin; row < range.end; ++row) {
    for (int64_t group = 0; group < op.scales.dim(1); ++group) {
      op.scales(row, group) =
          quantize_q4m_group(op.x.row(row) + group * 32, op.codes.row(row) + group * 16);
    }
  }
}

void index_key_store(const IndexKeyStore& op, RowRange range) {
  for (int64_t i = range.begin; i < range.end; ++i) {
    const NewEntry& entry = op.entries[static_cast<std::size_t>(i)];
    if (entry.row < 0) continue;
    const SequenceRows& sequence = op.rows.sequences[static_cast<std::size_t>(entry.sequence)];
    const IndexKey key = index_key(op.cache, sequence.block_table, entry.j);
    for (int64_t group = 0; group < op.k.dim(1) / 32; ++group) {
      key.scales[group] = quantize_q4m_group(op.k.row(i) + group * 32, key.codes + group * 16);
    }
  }
}

void index_select(const IndexSelect& op, RowRange range) {
  for (int64_t row = range.begin; row < range.end; ++row) {
    const std::vector<float> scores = score_row(op, row);
    select_best(scores, op.selected.row(row), op.selected.dim(1));
    if (!op.candidates_out.empty()) select_candidates(op, row, scores);
  }
}

}  // namespace di::ops::ref
