#include "engine/slot_drafts.h"

#include <algorithm>
#include <cmath>

#include "sched/draft_trust.h"

namespace di::engine {

SlotDrafts usable_drafts(
    const FetchedDrafts& drafts,
    int64_t sequence,
    std::span<const double> temperatures,
    int64_t vocab_size
) {
  SlotDrafts usable;
  std::vector<float> confidence;
  for (int64_t i = 0; i < drafts.tokens.dim(0); ++i) {
    const int32_t token = drafts.tokens(i, sequence);
    const bool is_token = token >= 0 && token < vocab_size;
    if (!is_token || !std::isfinite(drafts.confidence(i, sequence))) break;
    usable.tokens.push_back(token);
    confidence.push_back(drafts.confidence(i, sequence));
  }
  usable.survivals = sched::survivals(confidence, temperatures);
  return usable;
}

std::vector<int64_t> drafts_to_verify(const StepInputs& inputs, const HeldDrafts& held) {
  std::vector<int64_t> counts(inputs.sequences.size(), 0);
  if (inputs.max_verified == 0) return counts;
  std::vector<sched::Survivals> survivals(counts.size());
  int64_t rows = 0, drafting = 0;
  bool any = false, may_look_ahead = true;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const SequenceOrder& order = inputs.sequences[i];
    rows += order.rows.num_rows;
    drafting += order.drafts ? 1 : 0;
    const SlotDrafts* drafts = order.rows.is_prefill ? nullptr : held(order.rows.slot);
    if (drafts == nullptr) continue;
    counts[i] = std::min({drafts->count(), order.rows.num_drafts, inputs.max_verified});
    if (counts[i] == 0) continue;
    any = true;
    may_look_ahead = may_look_ahead && drafts->rule == sampling::VerificationRule::kExactSeed;
    survivals[i] = sched::believed(drafts->survivals, order.trust);
    survivals[i].resize(static_cast<std::size_t>(counts[i]));
  }
  if (inputs.costs == nullptr || !any) return counts;
  const sched::StepLoad load = inputs.costs->load(rows, drafting);
  if (!may_look_ahead) return sched::drafts_by_early_stop(survivals, inputs.costs->rows, load);
  return sched::deal_drafts(
      survivals, sched::draft_budget(survivals, inputs.costs->measured, load)
  );
}

}  // namespace di::engine
