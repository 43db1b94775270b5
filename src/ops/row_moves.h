// Rows enter the pass, change places in it, and are looked at.
#pragma once

#include "ops/rows.h"
#include "tensor/number_formats.h"

namespace di::ops {

/// Every stream of a row starts as its token's embedding, and the first one alone is collapsed.
struct Embed {
  View<bf16, 3> h;            // [rows, c, hidden]
  View<float, 2> a;           // [rows, c]: 1, 0, …
  View<const bf16, 2> table;  // [vocab_size, hidden]
  View<const bf16* const, 1>
      given;  // [rows]: a row's own embedding, nullptr: its token's; or empty
  Rows rows;
};

/// Copies `row_bytes` of each row; the two sides do not overlap.
struct CopyRows {
  std::byte* to = nullptr;
  int64_t to_stride = 0;  ///< bytes from one row to the next
  const std::byte* from = nullptr;
  int64_t from_stride = 0;  ///< 0: every row is the same one
  int64_t row_bytes = 0;    ///< a multiple of 4
  int64_t num_rows = 0;
  View<const int64_t, 1> sources;  // [num_rows]: rows of `from`, or empty: row i comes from row i
};

/// Sets finite[s] to 0 for each sequence s with a row whose streams hold a NaN or an infinity. A
/// NaN in a row may end in the quantisation of the next linear, where it becomes a wrong number
/// that nobody notices; the streams always keep it.
struct RowsFinite {
  View<uint8_t, 1> finite;  // [sequences]; entries of other sequences stay
  View<const bf16, 3> h;    // [rows, c, hidden]
  Rows rows;
};

}  // namespace di::ops
