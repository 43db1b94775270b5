// What the device keeps of a draft that block verification is to judge: the tokens that could have
// been drawn, by the law of each model. docs/drafts.md, "Verification".
#pragma once

#include <cstdint>

#include "sampling/draft_law.h"

namespace di::sampling::cuda {

/// One draft of a slot, in device memory. Masses are whole numbers, as in all draws.
struct DraftRecord {
  // Written with the draft: its DraftLaw.
  uint64_t mass;  ///< of all candidates
  int32_t count;  ///< of candidates; 1: the draft was the only choice
  int32_t tokens[kDraftCandidates];
  uint64_t masses[kDraftCandidates];

  // Written when the draft is verified: the target's law at its place.
  uint64_t target_mass;  ///< what the cuts keep; 0: nothing can be drawn
  uint64_t last_rank;    ///< of the last token that they keep; ~0: they keep all
  int32_t last_token;
  uint64_t target_ranks[kDraftCandidates];   ///< of the candidates, as if nothing were cut
  uint64_t target_masses[kDraftCandidates];  ///< likewise
};

}  // namespace di::sampling::cuda
