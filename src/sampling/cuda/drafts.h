// The choice of drafts on the device, for requests that sample: a draft is drawn from the drafter's
// logits as the target will draw at its position, with the same parameters and the very same random
// number, so that the two agree as often as their distributions do. Any draft is allowed where
// verification is by exact seed (verify.h).
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
