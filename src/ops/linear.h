// Activation quantisation and the linear layers. Arithmetic: docs/numerics.md, "Linears".
#pragma once

#include <span>

#include "ops/weight.h"
#include "tensor/number_formats.h"
#include "tensor/view.h"

namespace di::ops {

/// Activations after Q8: value = e4m3(code) · 2^(scale − 127), one scale for 32 columns.
struct Q8View {
  View<const uint8_t, 2> codes;   // [rows, cols]
  View<const uint8_t, 2> scales;  // [rows, cols / 32]
};

/// Q8: E4M3 codes with power-of-two scales for groups of 32 columns.
/// Source: model specification section 3, Q8.
struct QuantizeFp8 {
  View<uint8_t, 2> codes;   // [rows, cols]
  View<uint8_t, 2> scales;  // [rows, cols / 32]
  View<const bf16, 2> x;    // [rows, cols]
};

/// y = x · Wᵀ for quantised activations and FP8 or FP4 weights. Each 32-wide block of exact
/// products is summed and rounded once to fp32, times activation scale, times weight scale, and the
/// blocks are added in ascending order in fp32; the result is rounded to bf16.
struct LinearQ8 {
  View<bf16, 2> y;  // [rows, w.rows]
  Q8View x;         // [rows, w.cols]
  Weight w;         // kFp8 or kFp4
};

/// y = x · Wᵀ for bf16 activations and weights of any format but kFp4 (kFp8 is dequantised, which
/// is exact). The whole inner product is accumulated in double and rounded once to fp32.
///
/// With `groups` g > 1 the columns of x and the rows of W fall into g equal parts and part i of y
/// is part i of x times part i of W: x [rows, g · w.cols], y [rows, w.rows].
struct Linear {
  View<bf16, 2> y;       // [rows, w.rows]: the result rounded to bf16, unless y_f32 is given
  View<float, 2> y_f32;  // [rows, w.rows]: the fp32 result
  View<const bf16, 2> x;
  Weight w;
  int64_t groups = 1;
  float y_factor = 1;  ///< bf16 results are multiplied by it and rounded again, unless it is 1
  View<uint8_t, 2> codes = {};   // [rows, w.rows]: y in Q8; or empty: nobody wants it
  View<uint8_t, 2> scales = {};  // [rows, w.rows / 32]
};

/// Products that do not depend on each other, for backends that save time by running them
/// together: bit for bit those of linear_q8 and linear.
struct LinearSet {
  std::span<const LinearQ8> q8;
  std::span<const Linear> plain;
};

}  // namespace di::ops
