// Weight matrices as ops see them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace di::ops {

/// How the values of a matrix are stored.
enum class WeightFormat {
  kFp8,  ///< E4M3 [rows, cols]; E8M0 [⌈rows/32⌉, ⌈cols/32⌉], one scale for each 32×32 tile
  kFp4,  ///< E2M1 [rows, cols/2], even column in the low nibble; E8M0 [rows, cols/32]
  kBf16,  ///< bf16 [rows, cols]; no scales
  kF32,   ///< fp32 [rows, cols]; no scales
};

/// Columns that share one scale, in weights and in quantised activations.
inline constexpr int64_t kScaleGroup = 32;

/// A matrix [rows, cols] that somebody else owns. In checkpoint layout when it comes from a file; a
/// backend may ask for its own layout (OpTable::pack), which only that backend can read.
struct Weight {
  WeightFormat format = WeightFormat::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;  ///< values, row-major, or the backend's packed form
  const uint8_t* scales = nullptr;  ///< E8M0, or nullptr when packed into `data` or not used
};

/// Bytes of `weight.data` in checkpoint layout.
int64_t data_bytes(WeightFormat format, int64_t rows, int64_t cols);

/// Bytes of `weight.scales` in checkpoint layout.
int64_t scale_bytes(WeightFormat format, int64_t rows, int64_t cols);

}  // namespace di::ops
