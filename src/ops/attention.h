// Window and sparse attention over the quantised caches. Source: specification section 4.4; the
// order of the roundings: docs/numerics.md, "Attention".
#pragma once

#include "ops/norm.h"
#include "ops/rows.h"
#include "tensor/number_formats.h"

namespace di::ops {

/// How a compressed KV record is stored.
enum class KvFormat {
  kFp8,  ///< E4M3 [dim], then E8M0 [dim / 32]: window records, and compressed ones on request
  kFp4,  ///< E2M1 [dim / 2], then E4M3 [dim / 16]: compressed records
};

/// Bytes of one record of `dim` channels: 528 or 288 for dim 512.
int64_t kv_record_bytes(KvFormat format, int64_t dim);

/// Quantises rotated rows into window records (Q8, groups of 32).
struct WindowRecords {
  View<uint8_t, 2> records;  // [rows, kv_record_bytes(kFp8, dim)]
  View<const bf16, 2> kv;    // [rows, dim]
};

/// From raw keys to window records: RMS norm, rotation of the last channels, Q8. Beside it the norm
/// of the same rows' low-rank queries, when it is asked for.
struct WindowKeys {
  View<uint8_t, 2> records;          // [rows, kv_record_bytes(kFp8, dim)]
  View<bf16, 2> kv;                  // [rows, dim]; unspecified afterwards
  View<const bf16, 1> norm;          // [dim]
  View<const int64_t, 1> positions;  // [rows]
  View<const float, 1> frequencies;  // [rope_dim / 2]
  float eps = 0;                     // added to the mean square
  RmsNorm query = {};                // has as many rows; or empty
};

/// Copies this step's records into the rings, the newest `ring.length` of each sequence. Runs after
/// attention, so that earlier rows of a long chunk still find the positions before the chunk.
/// Beside it a rotation of other rows, which is due then, too.
struct WindowStore {
  RingView ring;
  View<const uint8_t, 2> records;  // [rows, record_bytes]
  Rows rows;
  Rope rotation = {};  // or of nothing
};

/// Quantises compressed latents into their records: Q4n (E2M1 with E4M3 scales for 16 channels) or
/// Q8.
struct CompressedStore {
  PagedView cache;
  KvFormat format = KvFormat::kFp4;
  View<const bf16, 2> kv;  // [entries, dim], rotated
  std::span<const NewEntry> entries;
  Rows rows;
};

/// One softmax over the window positions max(p − window + 1, window_begin) .. p and the selected
/// compressed entries, with a sink in the denominator. K and V are the same record. In a draft
/// block every row sees the same: the `window` positions before the block, and all of the block.
struct SparseAttention {
  View<bf16, 3> o;                        // [rows, heads, dim]
  View<const bf16, 3> q;                  // [rows, heads, dim]
  View<const uint8_t, 2> window_records;  // [rows, record_bytes]: this step's rows
  RingView ring;                          // positions before this step
  int64_t window = 0;                     // positions visible at most, the row's own included
  int64_t block = 0;                      // rows of each sequence's draft block; 0: no drafts
  PagedView compressed;                   // base == nullptr: no compressed part
  KvFormat format = KvFormat::kFp4;       // of `compressed`
  View<const int32_t, 2> selected;        // [rows, k] ascending entries; −1 = unused
  View<const float, 1> sink;              // [heads]
  float scale = 0;                        // of the logits: dim^(−1/2)
  Rows rows;
};

}  // namespace di::ops
