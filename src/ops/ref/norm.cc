// RMS norm and rotary positions.
#include "ops/canonical.h"
#include "ops/ref/ref.h"

namespace di::ops::ref {

void rms_norm(const RmsNorm& op, RowRange range) {
  const int64_t width = op.x.dim(1);
  for (int64_t row = range.begin; row < range.end; ++row) {
    const float factor = inverse_rms(op.x.row(row), width, op.eps);
    for (int64_t i = 0; i < width; ++i) {
      op.y(row, i) = to_bf16(to_float(op.weight(i)) * (to_float(op.x(row, i)) * factor));
    }
  }
  if (!op.codes.empty()) quantize_fp8({.codes = op.codes, .scales = op.scales, .x = op.y}, range);
}

void rope(const Rope& op, RowRange range) {
  const int64_t pairs = op.frequencies.dim(0);
  const int64_t first = op.x.dim(2) - 2 * pairs;
  for (int64_t row = range.begin; row < range.end; ++row) {
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const auto [c, s] = rotation(op.positions(row), op.frequencies(pair), op.inverse);
      for (int64_t head = 0; head < op.x.dim(1); ++head) {
        bf16* x = &op.x(row, head, first + 2 * pair);
        const float a = to_float(x[0]);
        const float b = to_float(x[1]);
        x[0] = to_bf16(a * c - b * s);
        x[1] = to_bf16(a * s + b * c);
      }
    }
  }
}

}  // namespace di::ops::ref
