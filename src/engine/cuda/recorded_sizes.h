// Which steps share a recording: sizes that a step of decode rows is filled up to.
#pragma once

#include <algorithm>
#include <bit>
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

/// How many recordings are kept, of a device with so many slots: each size in two lengths.
inline int64_t max_recordings(int64_t slots) {
  int64_t sizes = 0;
  for (int64_t rows = 1; rows <= slots; rows = padded_rows(rows) + 1)
    ++sizes;
  return std::max<int64_t>(8, 2 * sizes);
}

}  // namespace di::engine::cuda
