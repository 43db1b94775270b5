// The residual streams around a sublayer. Source: specification section 4.2.
#include <utility>

#include "model/activations.h"

namespace di::model {

SiteInput enter_site(
    const Pass& pass, const SiteWeights& site, const View<const bf16, 1>& weight, Activations& act
) {
  const ModelConfig& config = pass.model.config;
  const int64_t rows = act.num_rows();
  Arena& arena = pass.arena();
  const SiteInput input{
      arena.array<bf16>(rows, config.hidden_size),
      arena.array<uint8_t>(rows, config.hidden_size),
      arena.array<uint8_t>(rows, config.hidden_size / ops::kScaleGroup)};
  const Arena::Scope scope(arena);
  pass.ops.mhc_site(
      pass.exec,
      {.mix =
           {.pre = act.mix.pre,
            .post = act.mix.post,
            .comb = act.mix.comb,
            .mixes = arena.array<float>(rows, config.hc.mix_size()),
            .h = act.h,
            .fn = site.fn,
            .scale = site.scale,
            .base = site.base,
            .sinkhorn_iters = 0,  // expand() makes the passes
            .norm_eps = static_cast<float>(config.rms_norm_eps),
            .hc_eps = static_cast<float>(config.hc.hc_eps)},
       .x = input.x,
       .codes = input.codes,
       .scales = input.scales,
       .a = act.a,
       .norm = weight}
  );
  return input;
}

void expand(const Pass& pass, Activations& act) {
  const auto& hc = pass.model.config.hc;
  pass.ops.mhc_expand(
      pass.exec,
      {.h_out = act.h_next,
       .y = act.y,
       .h = act.h,
       .post = act.mix.post,
       .comb = act.mix.comb,
       .sinkhorn_iters = static_cast<int>(hc.hc_sinkhorn_iters),
       .hc_eps = static_cast<float>(hc.hc_eps)}
  );
  std::swap(act.h, act.h_next);
  std::swap(act.a, act.mix.pre);
}

}  // namespace di::model
