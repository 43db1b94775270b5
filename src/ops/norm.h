// Normalisation and rotary positions.
#pragma once

#include "tensor/number_formats.h"
#include "tensor/view.h"

namespace di::ops {

/// y = w · (x · rsqrt(mean(x²) + eps)), row by row, in fp32, rounded to bf16.
struct RmsNorm {
  View<bf16, 2> y;               // [rows, width], may alias x
  View<const bf16, 2> x;         // [rows, width]
  View<const bf16, 1> weight;    // [width]
  float eps = 0;                 // added to the mean square
  View<uint8_t, 2> codes = {};   // [rows, width]: y in Q8; or empty: nobody wants it
  View<uint8_t, 2> scales = {};  // [rows, width / 32]
};

/// Rotates the last 2 · frequencies channels of every head, adjacent pairs (2i, 2i+1) as complex
/// numbers, by the angle fl32(position · frequency_i); `inverse` rotates back.
struct Rope {
  View<bf16, 3> x;                   // [rows, heads, head_dim], rotated in place
  View<const int64_t, 1> positions;  // [rows]
  View<const float, 1> frequencies;  // [rope_dim / 2]
  bool inverse = false;
};

}  // namespace di::ops
