// Weights and activations like those of a trained model: gaussian values put through the
// checkpoint's own quantisers. Speed depends on them: a kernel may skip digits that are zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "bench/big_memory.h"
#include "ops/ops.h"

namespace di::bench {

/// A matrix in checkpoint layout that owns its bytes.
struct SyntheticWeight {
  ops::WeightFormat format;
  int64_t rows, cols;
  std::vector<std::byte> data;
  std::vector<uint8_t> scales;

  ops::Weight view() const { return {format, rows, cols, data.data(), scales.data()}; }
};

/// Gaussian with the spread 1/√cols, quantised with power-of-two scales (FP4: a row's 32 columns;
/// FP8: 32 × 32 tiles).
SyntheticWeight synthetic_weight(
    std::mt19937& random, ops::WeightFormat format, int64_t rows, int64_t cols
);

/// Gaussian activations [count] with the spread 1.
std::vector<bf16> synthetic_activations(std::mt19937& random, int64_t count);

/// One or more copies of a matrix in a backend's layout, each in memory of its own, so that a
/// benchmark can read weights that no cache holds.
class PackedCopies {
 public:
  PackedCopies(const ops::OpTable& table, const SyntheticWeight& weight, int64_t copies);

  int64_t count() const { return count_; }
  int64_t bytes() const { return bytes_; }  ///< of one copy
  ops::Weight operator[](int64_t i) const;

 private:
  ops::Weight shape_;
  int64_t count_;
  int64_t bytes_;
  BigMemory memory_;
};

}  // namespace di::bench
