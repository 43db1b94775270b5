// Which steps share a recording: sizes that steps of decode rows and drafts are filled up to.
#pragma once

#include <algorithm>
#include <bit>
#include <compare>
#include <cstdint>

#include "base/math.h"

namespace di::engine::cuda {

/// Rows of recorded steps: each size up to 8, then steps of a quarter to an eighth.
inline int64_t padded_rows(int64_t rows) {
  if (rows <= 8) return rows;
  const auto octave = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows)));
  return align_up(rows, std::max<int64_t>(2, octave / 8));
}

/// Sequences of recorded steps that verify drafts: each size up to 4, then two an octave.
inline int64_t verifying_sequences(int64_t sequences) {
  if (sequences <= 4) return sequences;
  const auto octave = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(sequences)));
  return align_up(sequences, octave / 2);
}

/// Their rows: 1, 1½, 2, 3, 4, … times as many. These steps have far more sizes than others, and
/// what is recorded once and not again costs several steps.
inline int64_t verifying_rows(int64_t rows, int64_t sequences, int64_t most_rows) {
  const int64_t most = sequences * most_rows;
  for (int64_t half = 2; half * sequences < 2 * most; half += half < 4 ? 1 : 2) {
    if (2 * rows <= half * sequences) return ceil_div(half * sequences, 2);
  }
  return most;
}

/// The longest sequence that a recorded step takes: a power of two from 4,096 on.
inline int64_t padded_length(int64_t length) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(4096, length)))
  );
}

/// What a recorded step of decode rows is for; what it enqueues depends on nothing else.
struct RecordedSize {
  int64_t rows = 0;
  int64_t sequences = 0;
  int64_t most_rows = 0;  ///< of a sequence
  int64_t max_length = 0;

  auto operator<=>(const RecordedSize&) const = default;
};

/// The recording for a step of `rows` rows of `sequences` sequences, the longest of which has
/// `length` tokens. No sequence has more than `most_rows` rows: 1, or that of all steps that verify
/// drafts, which then share recordings.
inline RecordedSize recorded_size(
    int64_t rows, int64_t sequences, int64_t most_rows, int64_t length
) {
  RecordedSize size{.most_rows = most_rows, .max_length = padded_length(length)};
  size.sequences = most_rows > 1 ? verifying_sequences(sequences) : padded_rows(sequences);
  size.rows = most_rows > 1 ? verifying_rows(rows, size.sequences, most_rows) : size.sequences;
  return size;
}

/// Sizes of recordings for up to `slots` sequences.
inline int64_t num_recorded_sizes(int64_t slots) {
  int64_t sizes = 0;
  for (int64_t rows = 1; rows <= slots; rows = padded_rows(rows) + 1)
    ++sizes;
  return sizes;
}

/// Sizes of recordings for up to `slots` sequences that verify drafts, `most_rows` rows each.
inline int64_t num_verifying_sizes(int64_t slots, int64_t most_rows) {
  int64_t sizes = 0;
  for (int64_t s = 1; s <= slots; s = verifying_sequences(s) + 1) {
    const int64_t sequences = verifying_sequences(s), most = sequences * most_rows;
    for (int64_t rows = 1; rows <= most; rows = verifying_rows(rows, sequences, most_rows) + 1)
      ++sizes;
  }
  return sizes;
}

/// How many recorded steps are kept, of a device with so many slots: each size in two lengths, with
/// `num_drafts` those that verify too.
inline int64_t max_recordings(int64_t slots, int64_t num_drafts) {
  const int64_t verifying = num_drafts > 0 ? num_verifying_sizes(slots, 1 + num_drafts) : 0;
  return std::max<int64_t>(8, 2 * (num_recorded_sizes(slots) + verifying));
}

/// How many recorded drafts are kept: each size, of steps with edits and without.
inline int64_t max_draft_recordings(int64_t slots) {
  return std::max<int64_t>(8, 2 * num_recorded_sizes(slots));
}

}  // namespace di::engine::cuda
