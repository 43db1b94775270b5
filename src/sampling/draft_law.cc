#include "sampling/draft_law.h"

#include <algorithm>

namespace di::sampling {
namespace {

/// Draws from the best tokens of `law`, in whole numbers, at `share` of their mass in rank order.
DraftChoice choose_among_best(Distribution& law, double share) {
  std::vector<TokenMass> best = law.best(kDraftCandidates);
  DraftChoice choice{.token = best.front().token};
  while (best.size() > 1 && best.back().mass < kLeastDraftMass)
    best.pop_back();
  if (best.size() == 1) return choice;
  uint64_t all = 0;
  for (const TokenMass& candidate : best)
    all += candidate.mass;
  const auto mark = static_cast<uint64_t>(share * static_cast<double>(all));
  uint64_t sum = 0;
  for (const TokenMass& candidate : best) {
    if (sum <= mark) choice.token = candidate.token;
    sum += candidate.mass;
    choice.law.push_back(
        {candidate.token, static_cast<double>(candidate.mass) / static_cast<double>(all)}
    );
  }
  return choice;
}

}  // namespace

DraftChoice choose_draft(
    Sampler& sampler, VerificationRule rule, const DraftPlace& place, std::vector<double>& scratch
) {
  CountedAhead counted(sampler);
  for (const int32_t token : place.before)
    counted.count(token);
  if (rule == VerificationRule::kExactSeed) {
    return {.token = std::max(sampler.best_token(place.logits, scratch), 0)};
  }
  SampledRow row = sampler.row(place.logits, scratch);
  if (!row.law.drawable()) return {};
  const auto index = std::ssize(place.before);
  return choose_among_best(row.law, draft_share(sampler.seed(), place.anchor_position, index));
}

}  // namespace di::sampling
