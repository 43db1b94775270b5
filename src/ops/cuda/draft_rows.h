// The rows of a draft whose anchors the processor does not know yet: how many tokens a step draws
// for each sequence is told on the device, and the draft behind it is placed before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/exec.h"
#include "ops/rows.h"
#include "tensor/view.h"

namespace di::ops::cuda {

/// A sequence that drafts.
struct DraftPlace {
  int32_t* tokens =
      nullptr;        ///< its tokens from position 0 on, in device memory, with room for the
                      ///< drafts behind the newest; nullptr: the sequence fills a step up
  int64_t known = 0;  ///< of them before the draws
  int64_t drawn = 0;  ///< index into num_drawn
};

/// Moves the rows of each sequence, placed as if nothing were drawn, to where its newest token is.
struct AnchorRows {
  View<const DraftPlace, 1> places;  // [sequences]
  View<const int32_t, 1> num_drawn;  // tokens that draws put behind the known ones
  Rows rows;                         // [sequences] of the same number of rows; start and positions
                                     // are written: they belong to this draft alone
  View<int32_t, 1> anchors;          // [sequences]: the newest tokens
  int64_t* anchor_positions = nullptr;  // of the first sequence; the others' lie
  int64_t position_stride = 0;          // so many bytes behind each other
  int64_t vocab_size = 0;  // what is no token, where a draw failed, becomes 0, in its place too
};

/// Enqueues one kernel.
void anchor_rows(Exec& exec, const AnchorRows& op);

/// Puts the drafts of each sequence behind its newest token.
struct StoreDrafts {
  View<const DraftPlace, 1> places;  // [sequences]
  View<const int32_t, 1> num_drawn;
  View<const int32_t, 2> drafts;  // [length, sequences]
};

/// Enqueues one kernel.
void store_drafts(Exec& exec, const StoreDrafts& op);

}  // namespace di::ops::cuda
