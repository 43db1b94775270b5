// Table lookup and gate of the n-gram memory.
#include "ops/canonical.h"
#include "ops/ref/ref.h"

namespace di::ops::ref {
namespace {

/// ⟨h · (q · k), key⟩: products rounded to fp32 left to right, summed in double.
double gate_dot(const bf16* h, const bf16* q, const bf16* k, const bf16* key, int64_t width) {
  return interleaved_sum(width, [=](int64_t d) {
    return to_float(h[d]) * (to_float(q[d]) * to_float(k[d])) * to_float(key[d]);
  });
}

}  // namespace

void engram_lookup(const EngramLookup& op, RowRange range) {
  const int64_t width = op.table.head_dim;
  const int64_t groups = width / kScaleGroup;
  for (int64_t row = range.begin; row < range.end; ++row) {
    for (int64_t lookup = 0; lookup < op.ids.dim(1); ++lookup) {
      const int64_t id = op.ids(row, lookup);
      const uint8_t* codes = op.table.codes + id * width;
      const uint8_t* scales = op.table.scales + id * groups;
      bf16* y = op.y.row(row) + lookup * width;
      for (int64_t d = 0; d < width; ++d) {
        y[d] = to_bf16(decode_e4m3(codes[d]) * decode_e8m0(scales[d / kScaleGroup]));
      }
    }
  }
}

void engram_gate(const EngramGate& op, RowRange range) {
  const int64_t streams = op.h.dim(1);
  const int64_t width = op.h.dim(2);
  for (int64_t row = range.begin; row < range.end; ++row) {
    const bf16* value = op.kv.row(row) + streams * width;
    const bool is_image = !op.is_image.empty() && op.is_image(row) != 0;
    for (int64_t c = 0; c < streams; ++c) {
      bf16* h = &op.h(row, c, 0);
      const bf16* key = op.kv.row(row) + c * width;
      const EngramSums sums = {
          .dot = gate_dot(h, op.q_weight.row(c), op.k_weight.row(c), key, width),
          .h_squares = sum_of_squares(h, width),
          .key_squares = sum_of_squares(key, width)};
      const float gate = is_image ? 0.0f : engram_gate_of(sums, width);
      if (!op.gate.empty()) op.gate(row, c) = gate;
      for (int64_t d = 0; d < width; ++d) {
        h[d] = to_bf16(to_float(h[d]) + gate * to_float(value[d]));
      }
    }
  }
}

}  // namespace di::ops::ref
