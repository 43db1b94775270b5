// Choosing a kernel, preparing activations for it and finding tiles: what linear.cc and experts.cc
// share.
#pragma once

#include "ops/cpu/activations.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/layout.h"

namespace di::ops::cpu {

/// Quantised activations in the form that weights of one format need.
struct Q8Form {
  TileKernel kernel;
  WeightFormat format;  ///< of the weights: kFp8 or kFp4
  int digit_bits;

  /// Bytes of one prepared row; that of 32 columns divides it, and blocks stand in order.
  int64_t row_bytes(int64_t cols) const;
  void prepare(const uint8_t* codes, const uint8_t* scales, int64_t cols, std::byte* out) const;
};

/// The form for LinearQ8 with such weights.
Q8Form q8_form(const Kernels& kernels, WeightFormat format);

/// The kernel of Linear for such weights; activations as prepare_double() makes them.
TileKernel linear_kernel(const Kernels& kernels, WeightFormat format);

/// Tile `index` of a packed matrix.
inline const std::byte* tile_of(const Weight& w, int64_t index) {
  return w.data + index * tile_bytes(w.format, w.cols);
}

/// Work for a thread at a time: big enough to hide the hand-out, small enough to balance.
int64_t grain_for(int64_t count, int num_threads);

/// Splits `count` rows into equal parts of at most kMaxRows.
struct RowChunks {
  int64_t count = 0;   ///< rows
  int64_t chunks = 0;  ///< parts

  explicit RowChunks(int64_t rows) : count(rows), chunks((rows + kMaxRows - 1) / kMaxRows) {}
  RowRange operator[](int64_t i) const { return {count * i / chunks, count * (i + 1) / chunks}; }
};

}  // namespace di::ops::cpu
