// Embedding, copies of rows, and the search for values that are not finite.
#include <cmath>
#include <cstring>

#include "ops/ref/ref.h"

namespace di::ops::ref {

void embed(const Embed& op, RowRange range) {
  const int64_t streams = op.h.dim(1);
  const int64_t width = op.h.dim(2);
  for (int64_t row = range.begin; row < range.end; ++row) {
    const SequenceRows& sequence =
        op.rows.sequences[static_cast<std::size_t>(op.rows.sequence_of(row))];
    const bf16* value = op.given.empty() ? nullptr : op.given(row);
    if (value == nullptr) value = op.table.row(sequence.tokens[op.rows.positions(row)]);
    for (int64_t c = 0; c < streams; ++c) {
      std::copy_n(value, width, &op.h(row, c, 0));
      op.a(row, c) = c == 0 ? 1.0f : 0.0f;
    }
  }
}

void copy_rows(const CopyRows& op, RowRange range) {
  for (int64_t row = range.begin; row < range.end; ++row) {
    const int64_t source = op.sources.empty() ? row : op.sources(row);
    std::memcpy(
        op.to + row * op.to_stride,
        op.from + source * op.from_stride,
        static_cast<std::size_t>(op.row_bytes)
    );
  }
}

void rows_finite(const RowsFinite& op, RowRange range) {
  constexpr uint16_t kExponent = 0x7F80;  // all ones: infinite or not a number
  for (int64_t s = range.begin; s < range.end; ++s) {
    const SequenceRows& sequence = op.rows.sequences[static_cast<std::size_t>(s)];
    const bf16* values = op.h.row(sequence.first_row);
    int64_t bad = 0;
    for (int64_t i = 0; i < sequence.num_rows * op.h.stride(); ++i)
      bad += (values[i].bits & kExponent) == kExponent ? 1 : 0;
    if (bad > 0) op.finite(s) = 0;
  }
}

}  // namespace di::ops::ref
