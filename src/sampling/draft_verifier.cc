// Block verification looks at a block up to the first draft behind which nothing can follow: one
// that ends the choice, or whose row is not finite. That is a schedule which looks at the drafts
// before only, so the law stays exact, and such a row counts exactly as often as the text meets it.
#include "sampling/draft_verifier.h"

#include <algorithm>

namespace di::sampling {
namespace {

std::span<const float> logits_row(const DraftedRows& rows, std::size_t i) {
  return {rows.logits.row(static_cast<int64_t>(i)), static_cast<std::size_t>(rows.logits.dim(1))};
}

VerifiedDraws verify_exact_seed(Sampler& sampler, const DraftedRows& rows, RowsScratch& scratch) {
  VerifiedDraws result;
  for (std::size_t i = 0; i <= rows.drafts.size(); ++i) {
    const int64_t position = rows.anchor_position + static_cast<int64_t>(i);
    result.draws.push_back(sampler.draw(logits_row(rows, i), position, scratch.front()));
    const Draw& draw = result.draws.back();
    if (!draw.finite || i == rows.drafts.size() || draw.token != rows.drafts[i]) break;
    ++result.accepted;
    if (sampler.is_end(draw.token)) break;
  }
  return result;
}

/// The block as the target sees it.
struct TargetRows {
  std::vector<SampledRow> rows;  ///< one for each draft that is judged; and the one behind them,
                                 ///< unless the last draft ends the choice
  std::size_t num_drafts = 0;    ///< that are judged
};

/// Each row with the drafts before it counted.
TargetRows target_rows(Sampler& sampler, const DraftedRows& block, RowsScratch& scratch) {
  TargetRows target;
  CountedAhead counted(sampler);
  for (std::size_t i = 0;; ++i) {
    target.rows.push_back(sampler.row(logits_row(block, i), scratch[i]));
    if (!target.rows.back().law.drawable() || i == block.drafts.size()) return target;
    target.num_drafts = i + 1;
    if (sampler.is_end(block.drafts[i])) return target;
    counted.count(block.drafts[i]);
  }
}

/// A draft beside the target's law at its place, in whole numbers as far as they go.
JudgedDraft judge(int32_t token, std::span<const DraftShare> law, Distribution& target) {
  const DraftShare only{token, 1};
  if (law.empty()) law = {&only, 1};
  JudgedDraft draft{.token = token};
  const auto all = static_cast<double>(target.mass());
  uint64_t others = target.mass();
  for (const DraftShare& share : law) {
    const uint64_t mass = target.mass_of_token(share.token);
    others -= mass;
    draft.candidates.push_back({share.token, share.probability, static_cast<double>(mass) / all});
  }
  draft.others = static_cast<double>(others) / all;
  return draft;
}

/// The token at `share` of what is left in place of `next`: candidates first, then the others in
/// rank order.
int32_t replacement(const JudgedDraft& next, double weight, double share, Distribution& target) {
  const Remainder rest = remainder(next, weight);
  double mark = share * rest.all;
  int32_t last = next.token;  // when nothing is left, both laws agree here and the draft will do
  std::vector<int32_t> candidates;
  for (std::size_t i = 0; i < next.candidates.size(); ++i) {
    candidates.push_back(next.candidates[i].token);
    if (rest.candidates[i] == 0) continue;
    last = candidates.back();
    if (mark < rest.candidates[i]) return last;
    mark -= rest.candidates[i];
  }
  return rest.others > 0 ? target.token_outside(candidates, mark / rest.others) : last;
}

}  // namespace

VerifiedDraws verify_block(
    Sampler& sampler, const DraftedRows& rows, const BlockNumbers& numbers, RowsScratch& scratch
) {
  scratch.resize(std::max(scratch.size(), rows.drafts.size() + 1));
  TargetRows target = target_rows(sampler, rows, scratch);
  std::vector<JudgedDraft> drafts;
  for (std::size_t i = 0; i < target.num_drafts; ++i) {
    const auto law = rows.laws.empty() ? std::span<const DraftShare>() : rows.laws[i];
    drafts.push_back(judge(rows.drafts[i], law, target.rows[i].law));
  }
  const BlockOdds odds = block_odds(drafts);
  VerifiedDraws result;
  result.accepted = accepted_length(odds, std::span(numbers.coins).first(drafts.size()));
  const auto accepted = static_cast<std::size_t>(result.accepted);
  for (std::size_t i = 0; i < accepted; ++i)
    result.draws.push_back(sampler.tell(target.rows[i], rows.drafts[i]));
  if (accepted == target.rows.size()) return result;  // the last draft ends the choice
  SampledRow& row = target.rows[accepted];
  if (!row.law.drawable()) {
    result.draws.push_back({.finite = false});
    return result;
  }
  const int32_t token =
      accepted == drafts.size()
          ? row.law.token_at(numbers.share)
          : replacement(drafts[accepted], odds.weight[accepted], numbers.share, row.law);
  result.draws.push_back(sampler.tell(row, token));
  return result;
}

VerifiedDraws verify_drafts(
    Sampler& sampler, VerificationRule rule, const DraftedRows& rows, RowsScratch& scratch
) {
  if (rule == VerificationRule::kBlock && !rows.drafts.empty()) {
    const BlockNumbers numbers =
        block_numbers(sampler.seed(), rows.anchor_position, rows.drafts.size());
    return verify_block(sampler, rows, numbers, scratch);
  }
  if (scratch.empty()) scratch.emplace_back();
  return verify_exact_seed(sampler, rows, scratch);
}

}  // namespace di::sampling
