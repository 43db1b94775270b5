// Token embeddings. Source: specification section 4.1, step 1.
#include <algorithm>

#include "model/activations.h"

namespace di::model {

namespace {

void take_memory(const Pass& pass, Activations& act) {
  const ModelConfig& config = pass.model.config;
  const int64_t rows = act.rows.count();
  const int64_t c = config.hc.hc_mult;
  Arena& arena = pass.arena();
  act.h = arena.array<bf16>(rows, c, config.hidden_size);
  act.h_next = arena.array<bf16>(rows, c, config.hidden_size);
  act.a = arena.array<float>(rows, c);
  act.mix.pre = arena.array<float>(rows, c);
  act.mix.post = arena.array<float>(rows, c);
  act.mix.comb = arena.array<float>(rows, c, c);
  act.selected = arena.array<int32_t>(rows, config.indexer.index_topk);
  act.candidates = arena.array<int32_t>(rows, config.indexer.candidate_topk_blocks);
  if (pass.options.draft_taps && config.draft.enabled()) {
    act.taps = arena.array<bf16>(rows, config.draft.num_targets() * config.hidden_size);
  }
}

}  // namespace

void embed(const Pass& pass, Activations& act) {
  const int64_t hidden = pass.model.config.hidden_size;
  const int64_t streams = pass.model.config.hc.hc_mult;
  take_memory(pass, act);
  const auto put = [&](int64_t row, const bf16* value) {
    for (int64_t c = 0; c < streams; ++c) {
      std::copy_n(value, hidden, &act.h(row, c, 0));
      act.a(row, c) = c == 0 ? 1.0f : 0.0f;
    }
  };
  for (std::size_t s = 0; s < pass.step.sequences.size(); ++s) {
    const SequenceInput& input = pass.step.sequences[s];
    const int64_t first = act.rows.sequences[s].first_row;
    for (std::size_t i = 0; i < input.tokens.size(); ++i) {
      put(first + static_cast<int64_t>(i), pass.model.weights.embed.row(input.tokens[i]));
    }
    for (const RowEmbedding& given : input.embeddings)
      put(first + given.row, given.value);
  }
}

}  // namespace di::model
