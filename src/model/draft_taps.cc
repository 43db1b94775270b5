// The draft taps: means of the streams at the inputs of the target layers, side by side.
// Source: specification sections 4.1 and 6.1.
#include "model/activations.h"
#include "ops/place.h"

namespace di::model {

void tap(const Pass& pass, int64_t l, Activations& act) {
  const int64_t index = pass.role(l).draft_target;
  if (index < 0 || act.taps.data == nullptr) return;
  const Arena::Scope scope(pass.arena());
  const int64_t rows = act.num_rows();
  const int64_t hidden = pass.model.config.hidden_size;
  const int64_t c = act.h.dim(1);
  const std::vector<float> shares(static_cast<std::size_t>(rows * c), 1.0f / static_cast<float>(c));
  const View<const float, 2> a(ops::place(pass.exec, shares).data, rows, c);
  const auto mean = pass.arena().array<bf16>(rows, hidden);
  pass.ops.mhc_collapse(pass.exec, {.x = mean, .h = act.h, .a = a});
  ops::CopyRows copy = whole(mean, View<bf16, 2>(act.taps.data + index * hidden, rows, hidden));
  copy.to_stride = act.taps.dim(1) * static_cast<int64_t>(sizeof(bf16));
  pass.ops.copy_rows(pass.exec, copy);
}

}  // namespace di::model
