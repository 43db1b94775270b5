// The mixture-of-experts sublayer. Source: specification section 4.7.
#include "model/activations.h"

namespace di::model {

View<bf16, 2> mixture_of_experts(
    const Pass& pass, int64_t l, const View<bf16, 2>& x, const Activations& act
) {
  const MoeConfig& config = pass.model.config.moe;
  const MoeWeights& weights = pass.layer(l).ffn;
  const int64_t rows = act.rows.count();

  const auto ids = pass.arena().array<int32_t>(rows, config.num_experts_per_tok);
  const auto expert_weights = pass.arena().array<float>(rows, config.num_experts_per_tok);
  pass.ops.route(
      pass.exec,
      {.ids = ids,
       .weights = expert_weights,
       .logits = linear_f32(pass, x, weights.gate),
       .bias = weights.bias,
       .bias_vl = weights.bias_vl,
       .is_image = act.rows.image_view(),
       .fixed_ids = {},
       .route_scale = static_cast<float>(config.routed_scaling_factor)}
  );
  observe(pass.options.observer, "expert_ids", l, ids);
  observe(pass.options.observer, "expert_weights", l, expert_weights);

  const auto y = pass.arena().array<bf16>(rows, pass.model.config.hidden_size);
  pass.ops.experts(
      pass.exec,
      {.y = y,
       .x = quantize(pass, x),
       .ids = ids,
       .weights = expert_weights,
       .experts = weights.experts,
       .shared = weights.shared_experts,
       .swiglu_limit = static_cast<float>(config.swiglu_limit)}
  );
  observe(pass.options.observer, "ffn_out", l, y);
  return y;
}

}  // namespace di::model
