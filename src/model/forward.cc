// The forward pass, layer by layer. Source: specification section 4.1.
#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "model/activations.h"
#include "model/placed_step.h"

namespace di::model {
namespace {

/// Looks for rows that have gone astray.
void note_finite(const Pass& pass, const Activations& act) {
  pass.ops.rows_finite(pass.exec, {.finite = act.finite, .h = act.h, .rows = act.rows->view()});
}

/// At the border of encoder and decoder: from here on only the kept rows are computed.
void enter_decoder(const Pass& pass, SiteInput& input, Activations& act) {
  note_finite(pass, act);
  const View<const int64_t, 1>& sources = pass.placed.kept_sources;
  act.rows = &*pass.placed.kept;
  input = {
      gather(pass, input.x, sources),
      gather(pass, input.codes, sources),
      gather(pass, input.scales, sources)};
  const auto keep = [&](auto& tensor) {
    const auto kept = gather(pass, tensor, sources);
    pass.ops.copy_rows(pass.exec, whole(kept, tensor));
    tensor.dims[0] = kept.dims[0];
  };
  keep(act.h);
  keep(act.a);
  keep(act.mix.pre);
  keep(act.mix.post);
  keep(act.mix.comb);
  if (act.taps.data != nullptr) keep(act.taps);
  for (int64_t* rows : {act.h_next.dims, act.y.dims, act.selected.dims, act.candidates.dims}) {
    *rows = act.num_rows();
  }
}

void attention_site(const Pass& pass, int64_t l, Activations& act) {
  const Arena::Scope scope(pass.arena());
  const LayerWeights& layer = pass.layer(l);
  SiteInput input = enter_site(pass, layer.hc_attn, layer.attn_norm, act);
  if (pass.role(l).is_kv_source) compress(pass, l, input.x, act);
  if (l == pass.placed.border) enter_decoder(pass, input, act);
  if (act.num_rows() == 0) return;
  attention(pass, l, input, act);
  expand(pass, act);
  observe(pass, "h_mid", l, act.h);
}

void expert_site(const Pass& pass, int64_t l, Activations& act) {
  const Arena::Scope scope(pass.arena());
  const LayerWeights& layer = pass.layer(l);
  const SiteInput input = enter_site(pass, layer.hc_ffn, layer.ffn_norm, act);
  mixture_of_experts(pass, l, input, act);
  expand(pass, act);
}

}  // namespace

void run_layer(const Pass& pass, int64_t l, Activations& act) {
  if (pass.role(l).engram >= 0) engram(pass, l, act);
  observe(pass, "h_in", l, act.h);
  tap(pass, l, act);
  attention_site(pass, l, act);
  if (act.num_rows() == 0) return;
  expert_site(pass, l, act);
  observe(pass, "h_out", l, act.h);
  observe(pass, "pre_out", l, act.a);
}

StepOutput run_placed(
    const Model& model,
    const PlacedStep& placed,
    cache::KvCache& cache,
    const ops::OpTable& ops,
    ops::Exec& exec,
    const ForwardOptions& options
) {
  const View<float, 2> y =
      exec.scratch.array<float>(placed.logit_rows.dim(0), model.weights.head.rows);
  View<int32_t, 3> ids;
  if (options.keep_expert_ids) {
    ids = exec.scratch.array<int32_t>(
        model.config.num_hidden_layers, placed.rows.count(), model.config.moe.num_experts_per_tok
    );
  }
  const Arena::Scope scope(exec.scratch);
  const Pass pass{model, placed, cache, ops, exec, options};
  Activations act;
  act.rows = &placed.rows;
  act.finite = placed.finite;
  act.expert_ids = ids;
  embed(pass, act);
  for (int64_t l = 0; l < model.config.num_hidden_layers && act.num_rows() > 0; ++l) {
    run_layer(pass, l, act);
  }
  observe(pass, "main_hidden", -1, act.taps);
  if (act.num_rows() > 0) {
    note_finite(pass, act);
    if (options.draft_context && model.weights.draft) write_draft_context(pass, act);
    if (y.dim(0) > 0) logits(pass, act, y);
  }
  return {.logits = y, .finite = placed.finite, .expert_ids = ids};
}

StepOutput forward(
    const Model& model,
    const Step& step,
    cache::KvCache& cache,
    const ops::OpTable& ops,
    ops::Exec& exec,
    const ForwardOptions& options
) {
  const auto finite =
      exec.scratch.array<uint8_t>(step.sequences.size());  // outlives the placed step
  const PlacedStep placed(model, step, {.replay = options.replay}, exec);
  const StepOutput output = run_placed(model, placed, cache, ops, exec, options);
  exec.scratch.memory().copy(finite.data, output.finite.data, finite.size(), exec.stream);
  return {.logits = output.logits, .finite = finite, .expert_ids = output.expert_ids};
}

}  // namespace di::model
