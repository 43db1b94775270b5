// Q8 and the linears, literally as docs/numerics.md states them.
#include <vector>

#include "ops/canonical.h"
#include "ops/ref/ref.h"

namespace di::ops::ref {
namespace {

/// Row n of the weight as plain numbers without their scales.
void decode_codes(const Weight& w, int64_t n, float* value) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(w.data);
  for (int64_t k = 0; k < w.cols; ++k) {
    switch (w.format) {
      case WeightFormat::kFp8: value[k] = decode_e4m3(bytes[n * w.cols + k]); break;
      case WeightFormat::kFp4: value[k] = decode_e2m1(nibble(bytes + n * w.cols / 2, k)); break;
      case WeightFormat::kBf16:
        value[k] = to_float(reinterpret_cast<const bf16*>(bytes)[n * w.cols + k]);
        break;
      case WeightFormat::kF32:
        value[k] = reinterpret_cast<const float*>(bytes)[n * w.cols + k];
        break;
    }
  }
}

/// The scale of row n's columns [32 · block, 32 · block + 32); 1 for formats without scales.
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

/// Activation codes as plain numbers [rows, cols].
std::vector<float> decode_activations(const View<const uint8_t, 2>& codes, RowRange range) {
  std::vector<float> value;
  for (int64_t i = range.begin * codes.dim(1); i < range.end * codes.dim(1); ++i) {
    value.push_back(decode_e4m3(codes.data[i]));
  }
  return value;
}

/// One output: exact blocks, each rounded once, scaled, and added in ascending order.
float dot_q8(
    const float* x, const uint8_t* x_scales, const float* codes, const Weight& w, int64_t n
) {
  float sum = 0;
  for (int64_t block = 0; block < w.cols / kScaleGroup; ++block) {
    double exact = 0;
    for (int64_t k = block * kScaleGroup; k < (block + 1) * kScaleGroup; ++k) {
      exact += static_cast<double>(x[k]) * codes[k];
    }
    sum += static_cast<float>(exact) * decode_e8m0(x_scales[block]) * scale_value(w, n, block);
  }
  return sum;
}

/// One output of a linear without activation quantisation: one double sum, rounded once.
float dot(const bf16* x, const float* weight, int64_t cols) {
  double sum = 0;
  for (int64_t k = 0; k < cols; ++k)
    sum += static_cast<double>(to_float(x[k])) * weight[k];
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
  const int64_t cols = op.w.cols;
  const std::vector<float> x = decode_activations(op.x.codes, range);
  std::vector<float> codes(static_cast<std::size_t>(cols));
  for (int64_t n = 0; n < op.w.rows; ++n) {
    decode_codes(op.w, n, codes.data());
    for (int64_t row = range.begin; row < range.end; ++row) {
      const float* x_row = x.data() + (row - range.begin) * cols;
      op.y(row, n) = to_bf16(dot_q8(x_row, op.x.scales.row(row), codes.data(), op.w, n));
    }
  }
}

void linear(const Linear& op, RowRange range) {
  const int64_t rows_per_group = op.w.rows / op.groups;
  std::vector<float> weight(static_cast<std::size_t>(op.w.cols));
  for (int64_t n = 0; n < op.w.rows; ++n) {
    decode_codes(op.w, n, weight.data());
    for (int64_t k = 0; k < op.w.cols; ++k) {
      weight[static_cast<std::size_t>(k)] *= scale_value(op.w, n, k / kScaleGroup);
    }
    for (int64_t row = range.begin; row < range.end; ++row) {
      const bf16* x = op.x.row(row) + n / rows_per_group * op.w.cols;
      const float y = dot(x, weight.data(), op.w.cols);
      if (op.y_f32.data != nullptr) {
        op.y_f32(row, n) = y;
      } else {
        op.y(row, n) = times_factor(to_bf16(y), op.y_factor);
      }
    }
  }
  if (!op.codes.empty()) quantize_fp8({.codes = op.codes, .scales = op.scales, .x = op.y}, range);
}

}  // namespace di::ops::ref
