// The rows of one step and the caches that they read and write.
//
// A step holds rows of many sequences: for each of them a run of consecutive positions, be it a
// prefill chunk or a single decode row. Nothing an op computes for a row depends on the other
// sequences of the step, nor on how a sequence's positions were split into steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/view.h"

namespace di::ops {

/// One sequence's rows in a step: row first_row + i stands at position start + i.
struct SequenceRows {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t start = 0;                     ///< position of the first row
  int64_t slot = 0;                      ///< state slot
  const int32_t* block_table = nullptr;  ///< block ids, in order of position
  int64_t window_begin = 0;         ///< window positions below this are invisible (bounded replay)
  const int32_t* tokens = nullptr;  ///< token ids from position 0 to the last row's
  const uint8_t* is_image = nullptr;  ///< for each of `tokens`; nullptr: none
};

/// All rows of a step. Like every view that an op is given, these lie in the backend's memory.
///
/// A device that repeats a recorded step may have more rows than sequences own: such a row repeats
/// another one, and since no sequence owns it, it leaves no trace in the caches.
struct Rows {
  std::span<const SequenceRows> sequences;
  View<const int32_t, 1> sequence_of;  // [rows]: index into `sequences`
  View<const int64_t, 1> positions;    // [rows]
  int64_t max_length = 0;  ///< no row's position lies at or beyond it; what workspace is sized by
  int64_t most_rows = 0;   ///< no sequence has more; 0: nobody counted. What launches are sized by

  int64_t count() const { return positions.dim(0); }
  /// The rows that the longest run of a sequence may have.
  int64_t longest_run() const { return most_rows > 0 ? most_rows : count(); }
};

/// One layer's window ring in every state slot: record of position p at slot p mod length.
struct RingView {
  std::byte* base = nullptr;
  int64_t slot_stride = 0;  ///< bytes from one state slot to the next
  int64_t length = 0;       ///< records
  int64_t record_bytes = 0;

  std::byte* at(int64_t slot, int64_t position) const {
    return base + slot * slot_stride + position % length * record_bytes;
  }
};

/// One owner layer's section of every block: compressed KV records, or index keys.
struct PagedView {
  std::byte* base = nullptr;
  int64_t block_stride = 0;       ///< bytes from one block to the next
  int64_t entries_per_block = 0;  ///< 128 / ratio
  int64_t record_bytes = 0;       ///< bytes of an entry's codes and, when interleaved, its scales

  /// The block's section that holds entry j of a sequence.
  std::byte* section(const int32_t* block_table, int64_t j) const {
    return base + block_table[j / entries_per_block] * block_stride;
  }
  /// The record of entry j, for interleaved records.
  std::byte* record(const int32_t* block_table, int64_t j) const {
    return section(block_table, j) + j % entries_per_block * record_bytes;
  }
};

/// A compressed entry that this step completes: entry j of a sequence, ending at row `row`.
struct NewEntry {
  int64_t row = 0;       ///< row of its last token; negative: none, and nothing is stored for it
  int64_t sequence = 0;  ///< index into Rows::sequences
  int64_t j = 0;         ///< compressed position
};

}  // namespace di::ops
