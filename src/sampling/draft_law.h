// How a drafter chooses a token of its own logits for a request: by the pipeline of the sampler, so
// that drafts meet what the target will draw. Only what verification needs of the law is kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/sampler.h"
#include "sampling/verification.h"

namespace di::sampling {

/// How many tokens a draft is drawn from at most, if block verification is to judge it. A drafter
/// puts nearly all mass on so many, and what is beyond only costs a draft that might have stayed.
constexpr int64_t kDraftCandidates = 64;

/// The least mass of such a token beside the best one's, kUnitMass: 1/2048. So all candidates lie
/// near the best token, where a device finds them quickly.
constexpr uint64_t kLeastDraftMass = uint64_t{1} << 34;

/// A token with its probability to be drafted.
struct DraftShare {
  int32_t token = 0;
  double probability = 0;

  bool operator==(const DraftShare&) const = default;
};

/// What a draft was drawn from, the best token first: at most kDraftCandidates probabilities that
/// sum to 1. Empty: the draft was the only choice.
using DraftLaw = std::vector<DraftShare>;

/// Where a draft is made.
struct DraftPlace {
  std::span<const float> logits;    ///< [vocab_size]: the drafter's, behind `before`
  int64_t anchor_position = 0;      ///< of the newest token
  std::span<const int32_t> before;  ///< the drafts between the anchor and this one
};

/// A draft.
struct DraftChoice {
  int32_t token = 0;
  DraftLaw law = {};  ///< for block verification; exact-seed needs none
};

/// Drafts the token that comes behind the anchor and the drafts before. The drafter's logits pass
/// through all that the target's would: penalties, bans and forced tokens, temperature and cuts.
///
/// For exact-seed it is the best token, which the target draws more often than what the drafter's
/// law gives for the target's own number (docs/drafts.md). For block verification it is drawn from
/// the kDraftCandidates best tokens, of those with kLeastDraftMass, by draft_share(). A row from
/// which nothing can be drawn gives token 0 as the only choice; a bad draft is never worse than
/// none.
///
/// `sampler` is left as it was, `scratch` is overwritten. Thread: one at a time for one sampler.
DraftChoice choose_draft(
    Sampler& sampler, VerificationRule rule, const DraftPlace& place, std::vector<double>& scratch
);

}  // namespace di::sampling
