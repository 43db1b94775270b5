// The indexer: which compressed entries a row attends to. Source: specification section 4.6.
#pragma once

#include "ops/rows.h"
#include "tensor/number_formats.h"

namespace di::ops {

/// Q4m: E2M1 codes with E8M0 scales for groups of 32.
struct QuantizeMxFp4 {
  View<uint8_t, 2> codes;   // [rows, dim / 2]
  View<uint8_t, 2> scales;  // [rows, dim / 32]
  View<const bf16, 2> x;    // [rows, dim]
};

/// Quantises index keys (Q4m) into a block's index section: all entries' codes, then all scales.
struct IndexKeyStore {
  PagedView cache;        // record_bytes = dim / 2 (codes only)
  View<const bf16, 2> k;  // [entries, dim], rotated
  std::span<const NewEntry> entries;
  Rows rows;
};

/// Scores every visible entry j < ⌊(p + 1) / ratio⌋ of each row's sequence,
/// score = Σ_h a_h · relu(q_h · k_j) in bf16 steps, and keeps the best `topk`; ties go to the lower
/// entry. A candidate source also names its best blocks of `candidate_block_size` entries, the
/// newest block always among them; a consumer scores only entries in the blocks that it is given.
struct IndexSelect {
  View<int32_t, 2> selected;  // [rows, topk] ascending; −1 = unused, at the end
  View<int32_t, 2>
      candidates_out;  // [rows, candidate_topk_blocks] ascending, −1 at the end; or empty
  View<const int32_t, 2>
      candidates_in;                 // the same, from the candidate source; or empty: all entries
  View<const uint8_t, 3> q_codes;    // [rows, heads, dim / 2]
  View<const uint8_t, 3> q_scales;   // [rows, heads, dim / 32]
  View<const bf16, 2> head_weights;  // [rows, heads]
  PagedView keys;                    // record_bytes = dim / 2
  int64_t ratio = 1;
  int64_t candidate_block_size = 0;
  Rows rows;
};

}  // namespace di::ops
