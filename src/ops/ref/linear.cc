// Q8 and the linears, literally as docs/numerics.md states them.
#include "ops/canonical.h"
#include "ops/ref/ref.h"

namespace di::ops::ref {
namespace {

/// The value of weight (n, k) without its scale.
float code_value(const Weight& w, int64_t n, int64_t k) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(w.data);
  switch (w.format) {
    case WeightFormat::kFp8: return decode_e4m3(bytes[n * w.cols + k]);
    case WeightFormat::kFp4: return decode_e2m1(nibble(bytes + n * w.cols / 2, k));
    case WeightFormat::kBf16: return to_float(reinterpret_cast<const bf16*>(bytes)[n * w.cols + k]);
    case WeightFormat::kF32: return reinterpret_cast<const float*>(bytes)[n * w.cols + k];
  }
  return 0;
}

/// The scale of weights (n, block · 32 ...), 1 for formats without scales.
float scale_value(const Weight& w, int64_t n, int64_t block) {
  const int64_t blocks = (w.cols + kScaleGroup - 1) / kScaleGroup;
  switch (w.format) {
    case WeightFormat::kFp8: return decode_e8m0(w.scales[n / kScaleGroup * blocks + block]);
    case WeightFormat::kFp4: return decode_e8m0(w.scales[n * blocks + block]);
    case WeightFormat::kBf16:
    case WeightFormat::kF32: return 1.0f;
  }
  return 0;
}

float dot_q8(const LinearQ8& op, int64_t row, int64_t n) {
  float sum = 0;
  for (int64_t block = 0; block < op.w.cols / kScaleGroup; ++block) {
    double exact = 0;
    for (int64_t k = block * kScaleGroup; k < (block + 1) * kScaleGroup; ++k) {
      exact += static_cast<double>(decode_e4m3(op.x.codes(row, k))) * code_value(op.w, n, k);
    }
    const float x_scale = decode_e8m0(op.x.scales(row, block));
    sum += static_cast<float>(exact) * x_scale * scale_value(op.w, n, block);
  }
  return sum;
}

float dot(const bf16* x, const Weight& w, int64_t n) {
  double sum = 0;
  for (int64_t k = 0; k < w.cols; ++k) {
    const float weight = code_value(w, n, k) * scale_value(w, n, k / kScaleGroup);
    sum += static_cast<double>(to_float(x[k])) * weight;
  }
  return static_cast<float>(sum);
}

}  // namespace

void quantize_fp8(const QuantizeFp8& op, RowRange range) {
  const int64_t groups = op.x.dim(1) / kScaleGroup;
  for (int64_t row = range.begin; row < range.end; ++row) {
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t first = group * kScaleGroup;
      op.scales(row, group) =
          quantize_q8_group(op.x.row(row) + first, kScaleGroup, op.codes.row(row) + first);
    }
  }
}

void linear_q8(const LinearQ8& op, RowRange range) {
  for (int64_t row = range.begin; row < range.end; ++row) {
    for (int64_t n = 0; n < op.w.rows; ++n)
      op.y(row, n) = to_bf16(dot_q8(op, row, n));
  }
}

void linear(const Linear& op, RowRange range) {
  const int64_t rows_per_group = op.w.rows / op.groups;
  for (int64_t row = range.begin; row < range.end; ++row) {
    for (int64_t n = 0; n < op.w.rows; ++n) {
      const bf16* x = op.x.row(row) + n / rows_per_group * op.w.cols;
      const float y = dot(x, op.w, n);
      if (op.y_f32.data != nullptr) {
        op.y_f32(row, n) = y;
      } else {
        op.y(row, n) = to_bf16(y);
      }
    }
  }
}

}  // namespace di::ops::ref
