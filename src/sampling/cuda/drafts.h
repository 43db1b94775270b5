// The choice of drafts on the device, as choose_draft() chooses them for the exact-seed rule
// (draft_law.h): drawn from the drafter's logits as the target will draw at their positions, with
// the same parameters and the very same random numbers. Any draft is allowed there (verify.h).
#pragma once

#include "sampling/cuda/draw.h"

namespace di::sampling::cuda {

/// A draft of each of many sequences.
struct DraftRows {
  View<const float, 2> logits;      // [sequences, vocab_size]
  View<const DrawRow, 1> rows;      // [sequences]: of the anchors; `place` is not used
  View<const SlotParams, 1> slots;  // nothing is counted
  View<int32_t, 2> drafts;          // [drafts, sequences]: the last of them are the ones to choose,
                                    // which hold the drafter's best tokens; the others are chosen
};

/// Puts the draws in the place of the best tokens. Those stay where a request draws the best token
/// anyway, or nothing can be drawn. Enqueues one kernel on `stream`.
/// Throws Error{kUnsupported} for a vocabulary too large.
void choose_drafts(cudaStream_t stream, const DraftRows& rows);

}  // namespace di::sampling::cuda
