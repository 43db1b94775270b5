// Choosing a kernel, preparing activations for it and finding tiles: what linear.cc and experts.cc
// share.
#pragma once

#include "ops/cpu/activations.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/layout.h"
#include "ops/exec.h"
#include "ops/linear.h"

namespace di::ops::cpu {

/// A kernel of LinearQ8 with what prepares its activations.
struct Q8Path {
  Q8Kernel kernel;
  const Kernels& kernels;

  /// Bytes of one prepared row; that of 32 columns divides it, and blocks stand in order.
  int64_t row_bytes(int64_t cols) const { return q8_row_bytes(kernel.form, cols); }
  void prepare(const uint8_t* codes, const uint8_t* scales, int64_t cols, std::byte* out) const {
    kernels.prepare(kernel.form, codes, scales, cols, out);
  }
};

/// The path for such weights and so many activation rows.
Q8Path q8_path(const Kernels& kernels, WeightFormat format, int64_t rows);

/// Prepares rows [rows.begin, rows.end) of x in parallel; row i goes to
/// out + (i − rows.begin) · path.row_bytes(cols).
void prepare_rows(Exec& exec, const Q8Path& path, const Q8View& x, RowRange rows, std::byte* out);

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
