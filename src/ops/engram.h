// Engram: hashed n-gram memory read into the residual streams. Source: specification section 4.3.
#pragma once

#include "ops/rows.h"
#include "tensor/number_formats.h"
#include "tensor/view.h"

namespace di::ops {

/// The n-gram hash of one Engram layer: which table rows a position looks up. With order n the
/// tokens from the position back are mixed, m = xor of id · multiplier over back = 0 … n, and head
/// h of order n ≥ 1 looks up m mod prime + offset. `pad` takes the place of positions before the
/// sequence, and of all that lies at or behind an image position.
struct EngramHash {
  View<int64_t, 2> ids;                // [rows, orders · heads], order by order
  View<const int32_t, 1> token_map;    // [vocab_size]: compressed ids
  View<const int64_t, 1> multipliers;  // [1 + orders]
  View<const int64_t, 1> primes;       // [orders · heads]
  View<const int64_t, 1> offsets;      // [orders · heads]: where each prime's rows begin
  int64_t pad = 0;                     // compressed id
  Rows rows;
};

/// An embedding table in the checkpoint's own form; may lie in a mapped file larger than memory.
struct EngramTable {
  const uint8_t* codes = nullptr;   ///< E4M3 [num_rows, head_dim]
  const uint8_t* scales = nullptr;  ///< E8M0 [num_rows, head_dim / 32]
  int64_t num_rows = 0;
  int64_t head_dim = 0;
};

/// Gathers and dequantises table rows, which is exact in bf16.
struct EngramLookup {
  View<bf16, 2> y;             // [rows, lookups · head_dim]
  View<const int64_t, 2> ids;  // [rows, lookups], each below table.num_rows
  EngramTable table;
};

/// h_out_c = h_c + γ_c · value with the gate γ_c = σ(copysign(√max(|g|, 1e-6), g)) and
/// g = ⟨h_c · q · k, key_c⟩ / (rms(h_c) · rms(key_c) · √hidden); rows in `is_image` keep h.
struct EngramGate {
  View<bf16, 3> h;                  // [rows, c, hidden], updated in place
  View<const bf16, 2> kv;           // [rows, (c + 1) · hidden]: c keys, then the value
  View<const bf16, 2> q_weight;     // [c, hidden]
  View<const bf16, 2> k_weight;     // [c, hidden]
  View<const uint8_t, 1> is_image;  // [rows], or empty: no image rows
  View<float, 2> gate;              // [rows, c]: γ, or empty when nobody wants it
};

}  // namespace di::ops
