// Token embeddings. Source: specification section 4.1, step 1.
#include "model/activations.h"

namespace di::model {
namespace {

void take_memory(const Pass& pass, Activations& act) {
  const ModelConfig& config = pass.model.config;
  const int64_t rows = act.num_rows();
  const int64_t c = config.hc.hc_mult;
  Arena& arena = pass.arena();
  act.h = arena.array<bf16>(rows, c, config.hidden_size);
  act.h_next = arena.array<bf16>(rows, c, config.hidden_size);
  act.a = arena.array<float>(rows, c);
  act.mix.pre = arena.array<float>(rows, c);
  act.mix.post = arena.array<float>(rows, c);
  act.mix.comb = arena.array<float>(rows, c, c);
  act.y = arena.array<bf16>(rows, config.hidden_size);
  act.selected = arena.array<int32_t>(rows, config.indexer.index_topk);
  act.candidates = arena.array<int32_t>(rows, config.indexer.candidate_topk_blocks);
  if (pass.options.draft_context && config.draft.enabled()) {
    act.taps = arena.array<bf16>(rows, config.draft.num_targets() * config.hidden_size);
  }
}

}  // namespace

void embed(const Pass& pass, Activations& act) {
  take_memory(pass, act);
  pass.ops.embed(
      pass.exec,
      {.h = act.h,
       .a = act.a,
       .table = pass.model.weights.embed,
       .given = pass.placed.given,
       .rows = act.rows->view()}
  );
}

}  // namespace di::model
