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
  const int64_t padded = padded_rows(sequences);
  return {
      .rows = std::min(padded_rows(rows), padded * most_rows),
      .sequences = padded,
      .most_rows = most_rows,
      .max_length = padded_length(length)};
}

/// Sizes of recordings for up to `slots` sequences.
inline int64_t num_recorded_sizes(int64_t slots) {
  int64_t sizes = 0;
  for (int64_t rows = 1; rows <= slots; rows = padded_rows(rows) + 1)
    ++sizes;
  return sizes;
}

/// How many recorded steps are kept, of a device with so many slots: each size in two lengths, and
/// as many more of steps that verify drafts.
inline int64_t max_recordings(int64_t slots, bool drafts = false) {
  return std::max<int64_t>(8, (drafts ? 4 : 2) * num_recorded_sizes(slots));
}

/// How many recorded drafts are kept: each size, of steps with edits and without.
inline int64_t max_draft_recordings(int64_t slots) {
  return std::max<int64_t>(8, 2 * num_recorded_sizes(slots));
}

}  // namespace di::engine::cuda
