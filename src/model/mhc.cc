// The residual streams around a sublayer. Source: specification section 4.2.
#include <utility>

#include "model/activations.h"

namespace di::model {

void mix_streams(const Pass& pass, const SiteWeights& site, Activations& act) {
  const ModelConfig& config = pass.model.config;
  const Arena::Scope scope(pass.arena());
  pass.ops.mhc_mix(
      pass.exec,
      {.pre = act.mix.pre,
       .post = act.mix.post,
       .comb = act.mix.comb,
       .mixes = pass.arena().array<float>(act.rows.count(), config.hc.mix_size()),
       .h = act.h,
       .fn = site.fn,
       .scale = site.scale,
       .base = site.base,
       .sinkhorn_iters = static_cast<int>(config.hc.hc_sinkhorn_iters),
       .norm_eps = static_cast<float>(config.rms_norm_eps),
       .hc_eps = static_cast<float>(config.hc.hc_eps)}
  );
}

View<bf16, 2> collapse_and_norm(
    const Pass& pass, const View<const bf16, 1>& weight, const Activations& act
) {
  const auto x = pass.arena().array<bf16>(act.rows.count(), pass.model.config.hidden_size);
  pass.ops.mhc_collapse(pass.exec, {.x = x, .h = act.h, .a = act.a});
  norm(pass, x, weight);
  return x;
}

void expand(const Pass& pass, const View<bf16, 2>& y, Activations& act) {
  pass.ops.mhc_expand(
      pass.exec,
      {.h_out = act.h_next, .y = y, .h = act.h, .post = act.mix.post, .comb = act.mix.comb}
  );
  std::swap(act.h, act.h_next);
  std::swap(act.a, act.mix.pre);
}

}  // namespace di::model
