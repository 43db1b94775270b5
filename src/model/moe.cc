// The mixture-of-experts sublayer. Source: specification section 4.7.
#include "model/activations.h"

namespace di::model {

void mixture_of_experts(const Pass& pass, int64_t l, const SiteInput& input, Activations& act) {
  const MoeConfig& config = pass.model.config.moe;
  const MoeWeights& weights = pass.layer(l).ffn;
  const int64_t rows = act.num_rows();
  const int64_t experts_per_row = pass.is_draft(l)
                                      ? pass.model.config.draft.dspark_num_experts_per_tok
                                      : config.num_experts_per_tok;

  const bool keeps_ids = !act.expert_ids.empty() && !pass.is_draft(l);
  const View<int32_t, 2> ids = keeps_ids
                                   ? View<int32_t, 2>(act.expert_ids.row(l), rows, experts_per_row)
                                   : pass.arena().array<int32_t>(rows, experts_per_row);
  const auto expert_weights = pass.arena().array<float>(rows, experts_per_row);
  pass.ops.route(
      pass.exec,
      {.ids = ids,
       .weights = expert_weights,
       .logits = linear_f32(pass, input.x, weights.gate),
       .bias = weights.bias,
       .bias_vl = weights.bias_vl,
       .is_image = act.rows->image_view(),
       .fixed_ids = {},
       .route_scale = static_cast<float>(config.routed_scaling_factor)}
  );
  observe(pass, "expert_ids", l, ids);
  observe(pass, "expert_weights", l, expert_weights);

  pass.ops.experts(
      pass.exec,
      {.y = act.y,
       .x = input.q8(),
       .ids = ids,
       .weights = expert_weights,
       .experts = weights.experts,
       .shared = weights.shared_experts,
       .swiglu_limit = static_cast<float>(config.swiglu_limit)}
  );
  observe(pass, "ffn_out", l, act.y);
}

}  // namespace di::model
