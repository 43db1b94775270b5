// The draft taps: means of the streams at the inputs of the target layers, side by side.
// Source: specification sections 4.1 and 6.1.
#include <algorithm>

#include "model/activations.h"

namespace di::model {

void tap(const Pass& pass, int64_t l, Activations& act) {
  const int64_t index = pass.role(l).draft_target;
  if (index < 0 || act.taps.data == nullptr) return;
  const Arena::Scope scope(pass.arena());
  const int64_t rows = act.rows.count();
  const int64_t hidden = pass.model.config.hidden_size;
  const int64_t c = act.h.dim(1);
  const auto weights = pass.arena().array<float>(rows, c);
  std::fill_n(weights.data, weights.size(), 1.0f / static_cast<float>(c));
  const auto mean = pass.arena().array<bf16>(rows, hidden);
  pass.ops.mhc_collapse(pass.exec, {.x = mean, .h = act.h, .a = weights});
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(mean.row(row), hidden, act.taps.row(row) + index * hidden);
  }
}

}  // namespace di::model
