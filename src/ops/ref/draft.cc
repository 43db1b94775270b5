// The Markov head, one logit after another.
#include <limits>

#include "ops/ref/ref.h"

namespace di::ops::ref {
namespace {

/// The bias of token `v` behind a token whose embedding is `e`.
float bias(const MarkovRound& op, const bf16* e, int64_t v) {
  const bf16* weight = reinterpret_cast<const bf16*>(op.head.data) + v * op.head.cols;
  double sum = 0;
  for (int64_t k = 0; k < op.head.cols; ++k)
    sum += static_cast<double>(to_float(e[k])) * to_float(weight[k]);
  return static_cast<float>(sum);
}

}  // namespace

const bf16* take_previous(const MarkovRound& op, int64_t row) {
  const int64_t rank = op.embed.dim(1);
  const bf16* e = op.embed.row(op.previous(row));
  std::copy_n(e, rank, op.features.row(row) + op.features.dim(1) - rank);
  return e;
}

void markov_round(const MarkovRound& op, RowRange range) {
  for (int64_t row = range.begin; row < range.end; ++row) {
    const bf16* e = take_previous(op, row);
    float best = -std::numeric_limits<float>::infinity();
    op.best(row) = 0;
    for (int64_t v = 0; v < op.head.rows; ++v) {
      float& logit = op.logits(row, v);
      logit += bias(op, e, v);
      if (!(logit > best)) continue;
      best = logit;
      op.best(row) = static_cast<int32_t>(v);
    }
  }
}

}  // namespace di::ops::ref
