#include "bench/synthetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/math.h"
#include "tensor/number_formats.h"

namespace di::bench {
namespace {

using ops::kScaleGroup;
using ops::WeightFormat;

constexpr int64_t kAlignment = 64;

std::vector<float> gaussian(std::mt19937& random, int64_t count, float spread) {
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values)
    value = normal(random);
  return values;
}

/// The E8M0 scale that brings the largest of a tile of values to at most `top`.
uint8_t tile_scale(const float* values, int64_t cols, int64_t rows, int64_t width, float top) {
  float largest = 0x1p-100f;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < width; ++i)
      largest = std::max(largest, std::fabs(values[row * cols + i]));
  }
  return e8m0_ceil(largest / top);
}

void quantize_fp4(const std::vector<float>& values, SyntheticWeight& w) {
  for (int64_t group = 0; group < w.rows * w.cols / kScaleGroup; ++group) {
    const float* from = values.data() + group * kScaleGroup;
    const uint8_t scale = tile_scale(from, w.cols, 1, kScaleGroup, 6.0f);
    w.scales[static_cast<std::size_t>(group)] = scale;
    auto* to = reinterpret_cast<uint8_t*>(w.data.data()) + group * kScaleGroup / 2;
    for (int64_t i = 0; i < kScaleGroup / 2; ++i) {
      const uint8_t even = encode_e2m1(from[2 * i] / decode_e8m0(scale));
      const uint8_t odd = encode_e2m1(from[2 * i + 1] / decode_e8m0(scale));
      to[i] = static_cast<uint8_t>(even | odd << 4);
    }
  }
}

void quantize_fp8(const std::vector<float>& values, SyntheticWeight& w) {
  for (int64_t row = 0; row < w.rows; row += kScaleGroup) {
    for (int64_t col = 0; col < w.cols; col += kScaleGroup) {
      const int64_t height = std::min(kScaleGroup, w.rows - row);
      const int64_t width = std::min(kScaleGroup, w.cols - col);
      const float* from = values.data() + row * w.cols + col;
      const uint8_t scale = tile_scale(from, w.cols, height, width, 448.0f);
      const int64_t tile = row / kScaleGroup * ceil_div(w.cols, kScaleGroup) + col / kScaleGroup;
      w.scales[static_cast<std::size_t>(tile)] = scale;
      auto* to = reinterpret_cast<uint8_t*>(w.data.data()) + row * w.cols + col;
      for (int64_t i = 0; i < height; ++i) {
        for (int64_t j = 0; j < width; ++j)
          to[i * w.cols + j] = encode_e4m3(from[i * w.cols + j] / decode_e8m0(scale));
      }
    }
  }
}

}  // namespace

SyntheticWeight synthetic_weight(
    std::mt19937& random, WeightFormat format, int64_t rows, int64_t cols
) {
  const float spread = 1.0f / std::sqrt(static_cast<float>(cols));
  const std::vector<float> values = gaussian(random, rows * cols, spread);
  SyntheticWeight w{format, rows, cols, {}, {}};
  w.data.resize(static_cast<std::size_t>(ops::data_bytes(format, rows, cols)));
  w.scales.resize(static_cast<std::size_t>(ops::scale_bytes(format, rows, cols)));
  switch (format) {
    case WeightFormat::kFp4: quantize_fp4(values, w); break;
    case WeightFormat::kFp8: quantize_fp8(values, w); break;
    case WeightFormat::kBf16:
      for (std::size_t i = 0; i < values.size(); ++i)
        reinterpret_cast<bf16*>(w.data.data())[i] = to_bf16(values[i]);
      break;
    case WeightFormat::kF32: std::memcpy(w.data.data(), values.data(), w.data.size()); break;
  }
  return w;
}

std::vector<bf16> synthetic_activations(std::mt19937& random, int64_t count) {
  std::vector<bf16> rounded;
  rounded.reserve(static_cast<std::size_t>(count));
  for (const float value : gaussian(random, count, 1.0f))
    rounded.push_back(to_bf16(value));
  return rounded;
}

PackedCopies::PackedCopies(const ops::OpTable& table, const SyntheticWeight& weight, int64_t copies)
    : shape_(weight.view()),
      count_(copies),
      bytes_(align_up(table.packed_bytes(weight.format, weight.rows, weight.cols), kAlignment)),
      memory_(copies * bytes_) {
  shape_.data = memory_.data();
  shape_.scales = nullptr;
  std::byte* first = memory_.data();
  table.pack(weight.view(), {0, weight.rows}, first);
  for (int64_t i = 1; i < copies; ++i)
    std::memcpy(first + i * bytes_, first, static_cast<std::size_t>(bytes_));
}

ops::Weight PackedCopies::operator[](int64_t i) const {
  ops::Weight w = shape_;
  w.data += i * bytes_;
  return w;
}

}  // namespace di::bench
