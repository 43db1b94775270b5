// The choice of drafts on the device, as choose_draft() chooses them (draft_law.h).
#pragma once

#include "sampling/cuda/draft_record.h"
#include "sampling/cuda/draw.h"

namespace di::sampling::cuda {

/// A sequence that drafts.
struct DraftRow {
  int64_t position = 0;   ///< of the anchor
  int32_t slot = -1;      ///< of SlotParams; negative: the best tokens stay
  bool is_plain = false;  ///< they stay, too: by exact seed, of a request that edits no logits
  DraftRecord* records =
      nullptr;  ///< [drafts], of the anchor's first draft on: what block verification will judge
                ///< by, and the temperature is not 0; nullptr: exact seed
};

/// A draft of each of many sequences.
struct DraftRows {
  View<const float, 2> logits;      // [sequences, vocab_size]
  View<const DraftRow, 1> rows;     // [sequences]
  View<const SlotParams, 1> slots;  // nothing is counted
  View<int32_t, 2> drafts;          // [drafts, sequences]: the last of them are the ones to choose,
                                    // which hold the drafter's best tokens; the others are chosen
};

/// Puts the drafts in the place of the best tokens, which stay where nothing can be drawn. For
/// block verification drafts are drawn and their records written; for exact seed they are the best
/// tokens after the request's edits. Enqueues one kernel on `stream`. Throws Error{kUnsupported}
/// for a vocabulary too large.
void choose_drafts(cudaStream_t stream, const DraftRows& rows);

}  // namespace di::sampling::cuda
