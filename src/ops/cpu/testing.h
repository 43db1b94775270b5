// Random operands for the tests and benchmarks of the cpu backend.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/isa.h"
#include "ops/ops.h"

namespace di::ops::cpu::testing {

/// The instruction sets that this processor offers.
inline std::vector<Isa> isas() {
  return usable_isas(detect_cpu());
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// A matrix in checkpoint layout.
struct RawWeight {
  WeightFormat format;
  int64_t rows, cols;
  std::vector<std::byte> data;
  std::vector<uint8_t> scales;

  Weight weight() const { return {format, rows, cols, data.data(), scales.data()}; }
};

/// A uniform integer in [low, high].
inline int uniform(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

/// Any E4M3 code but the two NaNs.
inline uint8_t random_e4m3(std::mt19937& random) {
  const int code = uniform(random, 0, 253);
  return static_cast<uint8_t>(code < 127 ? code : code + 1);
}

/// A scale near 1, one time in eight far below, down to the subnormal 2^-127.
inline uint8_t random_scale(std::mt19937& random) {
  return static_cast<uint8_t>(
      uniform(random, 0, 7) == 0 ? uniform(random, 0, 100) : uniform(random, 118, 132)
  );
}

/// `count` values of both signs over sixteen binary orders of magnitude, some of them zero.
inline std::vector<float> random_values(std::mt19937& random, int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::uniform_real_distribution<float> unit(-1.0f, 1.0f);
  for (float& value : values)
    value = uniform(random, 0, 15) == 0 ? 0.0f : std::ldexp(unit(random), uniform(random, -8, 8));
  return values;
}

inline std::vector<bf16> random_bf16(std::mt19937& random, int64_t count) {
  std::vector<bf16> rounded;
  for (const float value : random_values(random, count))
    rounded.push_back(to_bf16(value));
  return rounded;
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// By blocks of 32 columns: any code, large ones, or large ones with a rare other.
inline uint8_t fp8_weight(std::mt19937& random, int64_t column) {
  const uint8_t code = random_e4m3(random);
  const auto large = static_cast<uint8_t>((code & 0x87) | uniform(random, 6, 14) << 3);
  const int64_t kind = column / kScaleGroup % 3;
  return kind == 0 || (kind == 2 && uniform(random, 0, 200) == 0) ? code : large;
}

/// Every code except NaN, or plain values over many magnitudes.
inline RawWeight random_weight(
    std::mt19937& random, WeightFormat format, int64_t rows, int64_t cols
) {
  RawWeight w{format, rows, cols, {}, {}};
  switch (format) {
    case WeightFormat::kFp8:
    case WeightFormat::kFp4:
      w.data.resize(static_cast<std::size_t>(data_bytes(format, rows, cols)));
      for (std::size_t i = 0; i < w.data.size(); ++i) {
        const bool fp8 = format == WeightFormat::kFp8;
        const int code =
            fp8 ? fp8_weight(random, static_cast<int64_t>(i) % cols) : uniform(random, 0, 255);
        w.data[i] = static_cast<std::byte>(code);
      }
      break;
    case WeightFormat::kBf16: w.data = bytes_of(random_bf16(random, rows * cols)); break;
    case WeightFormat::kF32: w.data = bytes_of(random_values(random, rows * cols)); break;
  }
  w.scales.resize(static_cast<std::size_t>(scale_bytes(format, rows, cols)));
  for (uint8_t& scale : w.scales)
    scale = random_scale(random);
  return w;
}

/// A matrix in the form that `ops` wants.
class PackedWeight {
 public:
  PackedWeight(const OpTable& ops, const Weight& raw)
      : bytes_(static_cast<std::size_t>(ops.packed_bytes(raw.format, raw.rows, raw.cols))),
        weight_{raw.format, raw.rows, raw.cols, bytes_.data(), nullptr} {
    for (int64_t row = 0; row < raw.rows; row += kPackRows)
      ops.pack(raw, {row, std::min(raw.rows, row + kPackRows)}, bytes_.data());
  }
  Weight weight() const { return weight_; }

 private:
  std::vector<std::byte> bytes_;
  Weight weight_;
};

/// Quantised rows.
struct Q8Rows {
  int64_t rows, cols;
  std::vector<uint8_t> codes, scales;

  Q8View view() const {
    return {
        View<const uint8_t, 2>(codes.data(), rows, cols),
        View<const uint8_t, 2>(scales.data(), rows, cols / kScaleGroup)};
  }
};

/// Groups with every code except NaN, others with large values only, others with zeros.
inline Q8Rows random_q8(std::mt19937& random, int64_t rows, int64_t cols) {
  Q8Rows x{rows, cols, {}, {}};
  for (int64_t group = 0; group < rows * cols / kScaleGroup; ++group) {
    const int kind = uniform(random, 0, 4);
    for (int64_t i = 0; i < kScaleGroup; ++i) {
      const uint8_t code = random_e4m3(random);
      const uint8_t large = static_cast<uint8_t>((code & 0x87) | uniform(random, 8, 14) << 3);
      x.codes.push_back(kind == 0 ? 0 : kind < 3 ? large : code);
    }
    x.scales.push_back(random_scale(random));
  }
  return x;
}

}  // namespace di::ops::cpu::testing
