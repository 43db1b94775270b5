#include "engine/slot_drafts.h"

#include <algorithm>
#include <cmath>

namespace di::engine {

SlotDrafts usable_drafts(
    std::span<const int32_t> tokens,
    std::span<const float> confidence,
    std::span<const double> temperatures,
    int64_t vocab_size
) {
  std::size_t count = 0;
  while (count < tokens.size() && tokens[count] >= 0 && tokens[count] < vocab_size &&
         std::isfinite(confidence[count]))
    ++count;
  return {
      .tokens = {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count)},
      .survivals = sched::survivals(confidence.first(count), temperatures)};
}

std::vector<int64_t> drafts_to_verify(
    const StepInputs& inputs, std::span<const SlotDrafts* const> held, DraftSight sight
) {
  std::vector<int64_t> counts;
  std::vector<sched::Survivals> survivals;
  int64_t rows = 0, drafting = 0;
  for (std::size_t i = 0; i < inputs.sequences.size(); ++i) {
    const SequenceOrder& order = inputs.sequences[i];
    const int64_t own = held[i] == nullptr ? 0 : held[i]->count();
    counts.push_back(std::min({own, order.rows.num_drafts, inputs.max_verified}));
    rows += order.rows.num_rows;
    drafting += order.drafts ? 1 : 0;
    survivals.emplace_back();
    if (counts.back() == 0) continue;
    survivals.back() = held[i]->survivals;
    survivals.back().resize(static_cast<std::size_t>(counts.back()));
  }
  const bool any =
      std::any_of(counts.begin(), counts.end(), [](int64_t count) { return count > 0; });
  if (inputs.costs == nullptr || !any) return counts;
  const sched::StepLoad load = inputs.costs->load(rows, drafting);
  if (sight == DraftSight::kBehind)
    return sched::drafts_by_early_stop(survivals, inputs.costs->rows, load);
  return sched::deal_drafts(
      survivals, sched::draft_budget(survivals, inputs.costs->measured, load)
  );
}

}  // namespace di::engine
