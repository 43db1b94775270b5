// Draws of steps that verify drafts: the twin of verify_drafts() by either rule
// (draft_verifier.h), with the same bits.
//
// All rows of a block are drawn, or judged, at once: behind the drafts before a row, counts are
// known. Which of them become text is decided on the device.
#pragma once

#include "sampling/cuda/draft_record.h"
#include "sampling/cuda/draw.h"

namespace di::sampling::cuda {

/// Drafts that a block may have at most.
inline constexpr int64_t kMostDrafts = 30;

/// The rows of one sequence: behind the anchor, its newest token, and behind each of its drafts.
struct VerifyBlock {
  int64_t position = 0;             ///< of the anchor; the draw of row i follows position + i
  const int32_t* drafts = nullptr;  ///< [num_drafts], in device memory
  int32_t* place = nullptr;  ///< where the sequence keeps the tokens behind the anchor, in device
                             ///< memory; or nullptr. It may be where the drafts lie
  DraftRecord* records =
      nullptr;  ///< [num_drafts]: block verification judges the drafts, by the records that
                ///< were made of them; the temperature is not 0. nullptr: exact seed
  int32_t first_row = 0;  ///< of the logits; num_drafts more follow
  int32_t num_drafts = 0;
  int32_t slot = -1;      ///< of SlotParams; negative: nothing is drawn and nothing written
  bool is_plain = false;  ///< as in DrawRow
};

/// Blocks to draw from. At most one block of a slot in a call.
struct VerifyRows {
  View<const float, 2> logits;        // [rows, vocab_size]
  View<const VerifyBlock, 1> blocks;  // [blocks]
  int64_t most_drafts = 0;            // of a block; drafts behind them are not looked at
  View<const SlotParams, 1> slots;    // num_outputs and seen are counted on
  Drawn drawn;                        // [rows]
  View<int32_t, 1> num_drawn;         // [blocks]: draws of the block that count
};

/// Draws for each block. By exact seed until a draw is not its draft, ends the choice
/// (ends_choice()), is not finite, or is behind the last draft: those draws are as draw() would
/// have made them one after the other. By block verification the drafts that stay and the token
/// behind them, unless the last of them ends the choice.
///
/// The draws, num_drawn of them, are in `drawn` from the block's first row on, at `place`, and in
/// the counts of the slot; one that is not finite is the last and counts nothing. Rows of a block
/// behind them are written too and mean nothing.
///
/// Enqueues four kernels on `stream`, the same ones whatever the blocks hold; three when there are
/// no drafts.
/// Throws Error{kUnsupported} for more drafts than kMostDrafts, or a vocabulary too large.
void verify(cudaStream_t stream, const VerifyRows& rows);

}  // namespace di::sampling::cuda
