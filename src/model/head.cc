// From the streams to the logits. Source: specification section 4.1, step 3.
#include "model/activations.h"

namespace di::model {

View<bf16, 2> final_collapse(const Pass& pass, const Activations& act) {
  const View<const int64_t, 1>& rows = pass.placed.logit_rows;
  const auto x = pass.arena().array<bf16>(rows.dim(0), pass.model.config.hidden_size);
  const Arena::Scope scope(pass.arena());
  pass.ops.mhc_collapse(
      pass.exec, {.x = x, .h = gather(pass, act.h, rows), .a = gather(pass, act.a, rows)}
  );
  return x;
}

void logits(const Pass& pass, const Activations& act, const View<float, 2>& y) {
  const Arena::Scope scope(pass.arena());
  const View<bf16, 2> x = final_collapse(pass, act);
  norm(pass, x, pass.model.weights.norm);
  observe(pass, "final_hidden", -1, x);
  pass.ops.linear(pass.exec, {.y = {}, .y_f32 = y, .x = x, .w = pass.model.weights.head});
}

}  // namespace di::model
