// From drafts and the target's logits behind them to the tokens that are told: verification of one
// sequence's block by its sampler. docs/drafts.md compares the rules.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/draft_law.h"
#include "sampling/sampler.h"
#include "sampling/verification.h"
#include "tensor/view.h"

namespace di::sampling {

/// A block of k drafts, k ≥ 0, with the target's rows.
struct DraftedRows {
  View<const float, 2> logits;  ///< [k + 1, vocab_size]: behind the anchor and behind each draft
  std::span<const int32_t> drafts;  ///< [k]
  std::span<const DraftLaw> laws;   ///< [k]: what each was drawn from, for block verification; or
                                    ///< empty: each was the only choice
  int64_t anchor_position = 0;      ///< of the token before the drafts
};

/// What becomes of a block.
struct VerifiedDraws {
  std::vector<Draw> draws;  ///< 1 to k + 1: the accepted drafts and the token behind them. The last
                            ///< one may end the choice instead, or be not finite
  int64_t accepted = 0;     ///< drafts among them

  bool operator==(const VerifiedDraws&) const = default;
};

/// Room for processed rows [k + 1][vocab_size]; the caller's, overwritten and grown when needed.
using RowsScratch = std::vector<std::vector<double>>;

/// Verifies a block by `rule`. Each draw is told as Sampler::draw() tells it at its place, and
/// `sampler` has counted exactly the tokens that are told. Draws end behind a token that ends the
/// choice, and with one that is not finite: rows that the text does not reach do not matter.
///
/// Exact-seed: the draws are those of Sampler::draw(), one after another, as far as the drafts
/// agree. Block: their law is the target's. A block without drafts is one Sampler::draw() by
/// either. Thread: one at a time for one sampler.
VerifiedDraws verify_drafts(
    Sampler& sampler, VerificationRule rule, const DraftedRows& rows, RowsScratch& scratch
);

/// Block verification with these random numbers, which verify_drafts() takes from the sampler's
/// seed.
VerifiedDraws verify_block(
    Sampler& sampler, const DraftedRows& rows, const BlockNumbers& numbers, RowsScratch& scratch
);

}  // namespace di::sampling
