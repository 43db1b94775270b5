// From the streams to the logits. Source: specification section 4.1, step 3.
#include <algorithm>

#include "model/activations.h"

namespace di::model {
namespace {

/// Rows of `act` that want logits, sequence by sequence.
std::vector<int64_t> logit_rows(const Pass& pass, const Activations& act) {
  std::vector<int64_t> rows;
  for (std::size_t s = 0; s < pass.step.sequences.size(); ++s) {
    const ops::SequenceRows& sequence = act.rows.sequences[s];
    const int64_t end = sequence.first_row + sequence.num_rows;
    const LogitRows wanted = pass.step.sequences[s].logits;
    if (wanted == LogitRows::kLast) rows.push_back(end - 1);
    for (int64_t row = sequence.first_row; row < end && wanted == LogitRows::kAll; ++row) {
      rows.push_back(row);
    }
  }
  return rows;
}

template <class T, int Rank>
View<T, Rank> gather(Arena& arena, const View<T, Rank>& source, const std::vector<int64_t>& rows) {
  View<T, Rank> result = source;
  result.dims[0] = std::ssize(rows);
  result.data = arena.take<T>(result.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(source.row(rows[i]), source.stride(), result.row(static_cast<int64_t>(i)));
  }
  return result;
}

}  // namespace

std::vector<float> logits(const Pass& pass, const Activations& act) {
  const Arena::Scope scope(pass.arena());
  const std::vector<int64_t> rows = logit_rows(pass, act);
  if (rows.empty()) return {};
  const auto x = pass.arena().array<bf16>(std::ssize(rows), pass.model.config.hidden_size);
  pass.ops.mhc_collapse(
      pass.exec,
      {.x = x, .h = gather(pass.arena(), act.h, rows), .a = gather(pass.arena(), act.a, rows)}
  );
  norm(pass, x, pass.model.weights.norm);
  observe(pass.options.observer, "final_hidden", -1, x);

  const ops::Weight& head = pass.model.weights.head;
  std::vector<float> result(rows.size() * static_cast<std::size_t>(head.rows));
  const View<float, 2> y(result.data(), std::ssize(rows), head.rows);
  pass.ops.linear(pass.exec, {.y = {}, .y_f32 = y, .x = x, .w = head});
  return result;
}

}  // namespace di::model
