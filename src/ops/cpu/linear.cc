#include "ops/cpu/linear.h"

#include <algorithm>

#include "base/math.h"
#include "ops/canonical.h"
#include "ops/cpu/tiles.h"

namespace di::ops::cpu {
namespace {

/// Rows prepared at a time; bounds the scratch memory of a long prefill.
constexpr int64_t kPassRows = 128;

/// Some activation rows, prepared, times a packed matrix.
struct Product {
  TileKernel kernel;
  const Weight& w;
  const std::byte* rows;  // prepared
  int64_t row_bytes;      // from one prepared row to the next
  int64_t num_rows;
  int64_t groups = 1;       // Linear::groups
  int64_t group_bytes = 0;  // from one group of prepared columns to the next
};

/// Where results go: row i of the product to row first_row + i.
struct Output {
  View<bf16, 2> y;
  View<float, 2> y_f32;
  int64_t first_row;
  float y_factor = 1;

  void write(int64_t row, int64_t n, float value) const {
    if (y_f32.data != nullptr) {
      y_f32(first_row + row, n) = value;
    } else {
      y(first_row + row, n) = times_factor(to_bf16(value), y_factor);
    }
  }
};

/// One tile for one chunk of rows. A tile across the border of two groups is computed for each.
void run_tile(const Product& product, int64_t tile, RowRange rows, const Output& output) {
  const int64_t begin = tile * kTileRows;
  const int64_t end = std::min(product.w.rows, begin + kTileRows);
  const int64_t group_rows = product.w.rows / product.groups;
  const auto count = static_cast<int>(rows.end - rows.begin);
  float out[kMaxRows * kTileRows];
  const std::byte* x[kMaxRows];
  for (int64_t group = begin / group_rows; group * group_rows < end; ++group) {
    for (int i = 0; i < count; ++i)
      x[i] = product.rows + (rows.begin + i) * product.row_bytes + group * product.group_bytes;
    product.kernel({tile_of(product.w, tile), product.w.cols, x, count, out});
    const int64_t first = std::max(begin, group * group_rows);
    const int64_t last = std::min(end, (group + 1) * group_rows);
    for (int i = 0; i < count; ++i) {
      for (int64_t n = first; n < last; ++n)
        output.write(rows.begin + i, n, out[i * kTileRows + n - begin]);
    }
  }
}

void run(Exec& exec, const Product& product, const Output& output) {
  const int64_t tiles = ceil_div(product.w.rows, kTileRows);
  const RowChunks chunks(product.num_rows);
  const int64_t count = tiles * chunks.chunks;
  exec.pool.parallel_for(
      count,
      grain_for(count, exec.pool.num_threads()),
      [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i)
          run_tile(product, i % tiles, chunks[i / tiles], output);
      }
  );
}

}  // namespace

void linear_q8(const Kernels& kernels, Exec& exec, const LinearQ8& op) {
  const Q8Path path = q8_path(kernels, op.w.format, op.y.dim(0));
  const int64_t row_bytes = path.row_bytes(op.w.cols);
  for (int64_t first = 0; first < op.y.dim(0); first += kPassRows) {
    const int64_t count = std::min(kPassRows, op.y.dim(0) - first);
    const Arena::Scope scope(exec.scratch);
    auto* rows = exec.scratch.take<std::byte>(count * row_bytes);
    prepare_rows(exec, path, op.x, {first, first + count}, rows);
    run(exec, {path.kernel.run, op.w, rows, row_bytes, count}, {op.y, {}, first});
  }
}

void linear(const Kernels& kernels, Exec& exec, const Linear& op) {
  const int64_t group_bytes = double_row_bytes(op.w.cols);
  const int64_t row_bytes = op.groups * group_bytes;
  for (int64_t first = 0; first < op.x.dim(0); first += kPassRows) {
    const int64_t count = std::min(kPassRows, op.x.dim(0) - first);
    const Arena::Scope scope(exec.scratch);
    auto* rows = exec.scratch.take<std::byte>(count * row_bytes);
    exec.pool.parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t group = 0; group < op.groups; ++group) {
          const bf16* x = op.x.row(first + i) + group * op.w.cols;
          prepare_double(x, op.w.cols, rows + i * row_bytes + group * group_bytes);
        }
      }
    });
    const Product product{
        linear_kernel(kernels, op.w.format), op.w, rows, row_bytes, count, op.groups, group_bytes};
    run(exec, product, {op.y, op.y_f32, first, op.y_factor});
  }
}

}  // namespace di::ops::cpu
