// The draft taps: means of the streams at the inputs of the target layers, side by side.
// Source: specification sections 4.1 and 6.1.
#include "model/activations.h"

namespace di::model {

void tap(const Pass& pass, int64_t l, Activations& act) {
  const int64_t index = pass.role(l).draft_target;
  if (index < 0 || act.taps.data == nullptr) return;
  const Arena::Scope scope(pass.arena());
  const int64_t rows = act.num_rows();
  const int64_t hidden = pass.model.config.hidden_size;
  const int64_t c = act.h.dim(1);
  const auto shares = pass.arena().array<float>(rows, c);
  ops::CopyRows spread = whole(shares, shares);
  spread.from = reinterpret_cast<const std::byte*>(pass.model.equal_shares.data);
  spread.from_stride = 0;  // the same for every row
  pass.ops.copy_rows(pass.exec, spread);
  const auto mean = pass.arena().array<bf16>(rows, hidden);
  pass.ops.mhc_collapse(pass.exec, {.x = mean, .h = act.h, .a = shares});
  ops::CopyRows copy = whole(mean, View<bf16, 2>(act.taps.data + index * hidden, rows, hidden));
  copy.to_stride = act.taps.dim(1) * static_cast<int64_t>(sizeof(bf16));
  pass.ops.copy_rows(pass.exec, copy);
}

}  // namespace di::model
