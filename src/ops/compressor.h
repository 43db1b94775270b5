// The compressor: `ratio` tokens pooled into one KV entry. Source: specification section 4.5.
#pragma once

#include "ops/rows.h"
#include "tensor/number_formats.h"

namespace di::ops {

/// One layer's carry in every state slot: (kv, score) fp32 rows of the newest positions, so that a
/// group of tokens may straddle steps and rejected rows need no undoing.
/// Row of position p: [kv (dim) | score (dim)] at p mod length.
using CarryView = RingView;

/// Pools the rows of each new entry channel by channel: softmax of `score` over the entry's tokens,
/// weighted sum of `kv`, rounded to bf16. Tokens before this step come from the carry.
struct CompressorPool {
  View<bf16, 2> latent;        // [entries, dim]
  View<const float, 2> kv;     // [rows, dim]
  View<const float, 2> score;  // [rows, dim]
  CarryView carry;
  int64_t ratio = 0;
  std::span<const NewEntry> entries;
  Rows rows;
};

/// Copies this step's newest rows into the carry; runs after CompressorPool.
struct CarryStore {
  CarryView carry;
  View<const float, 2> kv;     // [rows, dim]
  View<const float, 2> score;  // [rows, dim]
  Rows rows;
};

}  // namespace di::ops
