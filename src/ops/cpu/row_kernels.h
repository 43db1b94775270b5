// What an instruction set provides for the ops that pass once over a row: norms, streams,
// quantisers, rotations, activations. Shapes, threads and per-row scalars are in rowwise.cc.
//
// Element by element the arithmetic is that of ops/canonical.h; sums have its orders. Pointers
// stand for rows of bf16 (as uint16_t) unless said otherwise; widths are multiples of 8. Files in
// avx2/ and avx512/ include this header and no other header of ours that holds inline functions
// (kernels.h says why).
#pragma once

#include <cstdint>

namespace di::ops::cpu {

/// x = Σ_c a_c · h_c over `width` channels; stream c of h begins at h + c · stride.
struct CollapseRow {
  uint16_t* x;
  const uint16_t* h;
  const float* a;
  int64_t streams;
  int64_t stride;
  int64_t width;
};

/// out_j = post_j · y + Σ_i comb_ij · h_i, streams as in CollapseRow.
struct ExpandRow {
  uint16_t* out;
  const uint16_t* y;
  const uint16_t* h;
  const float* post;
  const float* comb;  ///< [streams][streams]
  int64_t streams;
  int64_t stride;
  int64_t width;
};

/// u = silu(min(gate, limit)) · clamp(up, ±limit), times *weight unless that is nullptr.
struct SwiGluRow {
  uint16_t* u;
  const uint16_t* gate;
  const uint16_t* up;
  const float* weight;
  float limit;
  int64_t width;
};

/// The kernels of one instruction set. Results are bit-identical between sets.
struct RowKernels {
  /// Σ fl32(x²) in the order of interleaved_sum.
  double (*sum_of_squares)(const uint16_t* x, int64_t width);
  /// y = weight · (x · factor); y may be x.
  void (*apply_norm
  )(uint16_t* y, const uint16_t* x, const uint16_t* weight, float factor, int64_t width);
  /// Σ h · (q · k) · key, products rounded from left to right, in the order of interleaved_sum.
  double (*gate_dot
  )(const uint16_t* h, const uint16_t* q, const uint16_t* k, const uint16_t* key, int64_t width);
  /// h = h + gate · value.
  void (*add_scaled)(uint16_t* h, const uint16_t* value, float gate, int64_t width);
  void (*collapse)(const CollapseRow& row);
  void (*expand)(const ExpandRow& row);
  void (*swiglu)(const SwiGluRow& row);
  /// Rotates `pairs` adjacent pairs of x by the angles of cosine and sine.
  void (*rotate)(uint16_t* x, const float* cosine, const float* sine, int64_t pairs);
  /// Q8 in groups of 32 (quantize_q8_group).
  void (*quantize_q8)(const uint16_t* x, int64_t groups, uint8_t* codes, uint8_t* scales);
  /// Q4m in groups of 32 (quantize_q4m_group).
  void (*quantize_q4m)(const uint16_t* x, int64_t groups, uint8_t* codes, uint8_t* scales);
  /// bf16 of E4M3 codes with E8M0 scales, in groups of 32.
  void (*dequantize_fp8)(const uint8_t* codes, const uint8_t* scales, int64_t groups, uint16_t* y);
};

extern const RowKernels kAvx2Rows;
extern const RowKernels kAvx512Rows;

}  // namespace di::ops::cpu
