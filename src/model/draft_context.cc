// What drafts look back on: for every row the taps projected to one vector, which each draft stage
// turns into a key of its window ring. All rows are written, those of drafts in verification, too:
// the rings have room for as many rows as may be taken back. Source: specification section 6.1.
#include "model/activations.h"

namespace di::model {

void write_draft_context(const Pass& pass, const Activations& act) {
  const Arena::Scope scope(pass.arena());
  const DraftWeights& draft = *pass.model.weights.draft;
  const View<bf16, 2> main = linear_q8(pass, quantize(pass, act.taps), draft.main_proj);
  const ops::Q8View context = norm_q8(pass, main, draft.main_norm);
  const int64_t first = pass.model.config.num_hidden_layers;
  for (int64_t l = first; l < pass.model.config.num_layers(); ++l) {
    const Arena::Scope stage_scope(pass.arena());
    pass.ops.window_store(
        pass.exec,
        {.ring = pass.cache.ring(l),
         .records = window_records(pass, l, context, act),
         .rows = act.rows->view()}
    );
  }
}

}  // namespace di::model
