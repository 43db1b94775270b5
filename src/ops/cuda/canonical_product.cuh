// A tile of a matrix product in the arithmetic of the reference: every output is one chain over
// ascending columns, so its bits depend on its row alone, whatever the tile. Columns pass through
// shared memory, decoded to double once for all threads that need them.
#pragma once

#include <type_traits>

#include "ops/cuda/canonical_weights.h"
#include "ops/cuda/number_formats.cuh"

namespace di::ops::cuda::canonical {

inline constexpr int kThreads = 256;
inline constexpr int kGroup = static_cast<int>(kScaleGroup);

/// A matrix as the checkpoint has it.
struct Matrix {
  const uint8_t* data;
  const uint8_t* scales;
  WeightFormat format;
  int rows;
  int cols;

  /// Columns with a scale of their own.
  __device__ int groups() const { return (cols + kGroup - 1) / kGroup; }
};

inline Matrix matrix_of(const Weight& w) {
  return {
      .data = reinterpret_cast<const uint8_t*>(w.data),
      .scales = scales_of(w),
      .format = w.format,
      .rows = static_cast<int>(w.rows),
      .cols = static_cast<int>(w.cols)};
}

/// How matrices of a format are read. Loading and decoding are apart, so that many loads can be
/// under way.
template <WeightFormat kFormat>
struct Format {
  using Code = std::conditional_t<
      kFormat == WeightFormat::kF32,
      float,
      std::conditional_t<kFormat == WeightFormat::kBf16, bf16, uint8_t>>;

  /// What holds a value.
  __device__ static Code load(const Matrix& w, int64_t row, int col) {
    const int64_t i = row * w.cols + col;
    return reinterpret_cast<const Code*>(w.data)[kFormat == WeightFormat::kFp4 ? i / 2 : i];
  }
  /// The value without its scale; 0 for a code of zeros.
  __device__ static float decode(Code code, int col) {
    if constexpr (kFormat == WeightFormat::kFp4) return decode_e2m1(code >> (col % 2 * 4) & 15);
    if constexpr (kFormat == WeightFormat::kFp8) return decode_e4m3(code);
    if constexpr (kFormat == WeightFormat::kBf16) return to_float(code);
    if constexpr (kFormat == WeightFormat::kF32) return code;
  }
  /// The code of the scale of a group of a row; 127, which is 1, for formats without.
  __device__ static uint8_t load_scale(const Matrix& w, int64_t row, int group) {
    if constexpr (kFormat == WeightFormat::kFp4) return w.scales[row * w.groups() + group];
    if constexpr (kFormat == WeightFormat::kFp8)
      return w.scales[row / kScaleGroup * w.groups() + group];
    return 127;
  }
};

/// What is multiplied for `linear`: bf16 by dequantised weights, which is exact in double; a sum is
/// one chain in double, rounded once.
template <WeightFormat kFormat>
struct PlainProduct {
  const bf16* x;
  int64_t stride;  ///< elements from one row to the next

  using Input = bf16;
  struct Factor {
    typename Format<kFormat>::Code code;
    uint8_t scale;
  };
  struct Sum {
    double chain = 0;
    __device__ void add(double x, double w) { chain = fma(x, w, chain); }
    __device__ void end_group(uint8_t, uint8_t) {}
    __device__ float result() const { return static_cast<float>(chain); }
  };

  __device__ Input load(int64_t row, int col) const { return x[row * stride + col]; }
  __device__ uint8_t load_scale(int64_t, int) const { return 127; }
  __device__ static float value(Input input) { return to_float(input); }
  __device__ static Factor load_factor(const Matrix& w, int64_t row, int col) {
    return {Format<kFormat>::load(w, row, col), Format<kFormat>::load_scale(w, row, col / kGroup)};
  }
  __device__ static float value(Factor factor, int col) {
    return Format<kFormat>::decode(factor.code, col) * decode_e8m0(factor.scale);
  }
  __device__ static uint8_t load_factor_scale(const Matrix&, int64_t, int) { return 127; }
};

/// What is multiplied for `linear_q8`: codes by codes. The sum of a group is exact in double and
/// rounded once to fp32; it is scaled and added in fp32.
template <WeightFormat kFormat>
struct Q8Product {
  const uint8_t* codes;
  const uint8_t* scales;
  int64_t stride;  ///< columns of a row

  using Input = uint8_t;
  using Factor = uint8_t;
  struct Sum {
    double group = 0;
    float sum = 0;
    __device__ void add(double x, double w) { group = fma(x, w, group); }
    __device__ void end_group(uint8_t x_scale, uint8_t w_scale) {
      sum += static_cast<float>(group) * decode_e8m0(x_scale) * decode_e8m0(w_scale);
      group = 0;
    }
    __device__ float result() const { return sum; }
  };

  __device__ Input load(int64_t row, int col) const { return codes[row * stride + col]; }
  __device__ uint8_t load_scale(int64_t row, int group) const {
    return scales[row * (stride / kScaleGroup) + group];
  }
  __device__ static float value(Input input) { return decode_e4m3(input); }
  __device__ static Factor load_factor(const Matrix& w, int64_t row, int col) {
    return Format<kFormat>::load(w, row, col);
  }
  __device__ static float value(Factor factor, int col) {
    return Format<kFormat>::decode(factor, col);
  }
  __device__ static uint8_t load_factor_scale(const Matrix& w, int64_t row, int group) {
    return Format<kFormat>::load_scale(w, row, group);
  }
};

/// How a tile is shared among threads: kRowThreads × kOutputThreads of them, each with kRowsEach ×
/// kOutputsEach sums, over kGroups groups of columns at a time.
template <int kRowThreads_, int kRowsEach_, int kOutputsEach_, int kGroups_>
struct TileShape {
  static constexpr int kGroups = kGroups_;
  static constexpr int kColumns = kGroups * kGroup;
  static constexpr int kRowThreads = kRowThreads_;
  static constexpr int kRowsEach = kRowsEach_;
  static constexpr int kOutputsEach = kOutputsEach_;
  static constexpr int kOutputThreads = kThreads / kRowThreads;
  static constexpr int kRows = kRowThreads * kRowsEach;
  static constexpr int kOutputs = kOutputThreads * kOutputsEach;
};
using FewRows = TileShape<4, 2, 1, 2>;    ///< 8 rows × 64 outputs: for decode steps
using ManyRows = TileShape<16, 4, 4, 1>;  ///< 64 rows × 64 outputs: a value is read for four sums

/// A tile's operands as doubles, column by column. One more place a column spreads the threads that
/// write one row over the banks.
template <class Shape>
struct TileMemory {
  double x[Shape::kColumns][Shape::kRows + 1];
  double w[Shape::kColumns][Shape::kOutputs + 1];
};

/// What a thread has loaded of kColumns columns of kLength rows, before there is room for it in
/// shared memory. A warp takes neighbouring columns of one row.
template <class Code, int kColumns, int kLength>
struct Loaded {
  static constexpr int kEach = kLength * kColumns / kThreads;
  Code codes[kEach];

  __device__ static int column() { return static_cast<int>(threadIdx.x) % kColumns; }
  __device__ static int row(int j) {
    return static_cast<int>(threadIdx.x) / kColumns + j * (kThreads / kColumns);
  }

  /// load_of(i) is the code of row i in column(), where there is one.
  template <class LoadOf>
  __device__ void load(int rows, bool has_column, const LoadOf& load_of) {
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      codes[j] = has_column && row(j) < rows ? load_of(row(j)) : Code{};
  }
  template <class ValueOf>
  __device__ void store(double (*to)[kLength + 1], const ValueOf& value_of) const {
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      to[column()][row(j)] = value_of(codes[j]);
  }
};

/// The sums of one thread.
template <class Shape, class Product>
struct ThreadSums {
  typename Product::Sum sums[Shape::kRowsEach][Shape::kOutputsEach];

  __device__ static int output(int j) {
    return static_cast<int>(threadIdx.x) % Shape::kOutputThreads + j * Shape::kOutputThreads;
  }
  __device__ static int row(int i) {
    return static_cast<int>(threadIdx.x) / Shape::kOutputThreads + i * Shape::kRowThreads;
  }

  /// Adds the products of group `g` of the step in shared memory.
  __device__ void add_group(const TileMemory<Shape>& memory, int g) {
#pragma unroll 4
    for (int k = g * kGroup; k < (g + 1) * kGroup; ++k) {
      double x[Shape::kRowsEach];
      double w[Shape::kOutputsEach];
#pragma unroll
      for (int i = 0; i < Shape::kRowsEach; ++i)
        x[i] = memory.x[k][row(i)];
#pragma unroll
      for (int j = 0; j < Shape::kOutputsEach; ++j)
        w[j] = memory.w[k][output(j)];
#pragma unroll
      for (int i = 0; i < Shape::kRowsEach; ++i) {
#pragma unroll
        for (int j = 0; j < Shape::kOutputsEach; ++j)
          sums[i][j].add(x[i], w[j]);
      }
    }
  }
};

/// Outputs [first, last) of `count` rows. row_of(i) is where row i lies in `product`; store(i, n,
/// sum) is called once for each output n of each row i. All threads of the block call it.
template <class Shape, class Product, class RowOf, class Store>
__device__ void multiply_tile(
    const Product& product,
    const Matrix& w,
    int first,
    int last,
    int count,
    TileMemory<Shape>& memory,
    const RowOf& row_of,
    const Store& store
) {
  using Sums = ThreadSums<Shape, Product>;
  Sums sums;
  Loaded<typename Product::Input, Shape::kColumns, Shape::kRows> x;
  Loaded<typename Product::Factor, Shape::kColumns, Shape::kOutputs> factors;
  const auto load = [&](int begin) {
    const int col = begin + x.column();
    const bool has_column = col < w.cols;
    x.load(count, has_column, [&](int i) { return product.load(row_of(i), col); });
    factors.load(last - first, has_column, [&](int n) {
      return Product::load_factor(w, first + n, col);
    });
  };
  load(0);
  for (int begin = 0; begin < w.cols; begin += Shape::kColumns) {
    __syncthreads();
    x.store(memory.x, [](auto code) { return Product::value(code); });
    factors.store(memory.w, [&](auto code) { return Product::value(code, x.column()); });
    __syncthreads();
    load(begin + Shape::kColumns);
    if (Sums::row(0) >= count) continue;  // none of the rows is this thread's
#pragma unroll
    for (int g = 0; g < Shape::kGroups; ++g) {
      const int group = begin / kGroup + g;
      if (group >= w.groups()) break;
      uint8_t x_scale[Shape::kRowsEach];
      uint8_t w_scale[Shape::kOutputsEach];
#pragma unroll
      for (int i = 0; i < Shape::kRowsEach; ++i)
        x_scale[i] = Sums::row(i) < count ? product.load_scale(row_of(Sums::row(i)), group) : 127;
#pragma unroll
      for (int j = 0; j < Shape::kOutputsEach; ++j) {
        const int n = first + Sums::output(j);
        w_scale[j] = n < last ? Product::load_factor_scale(w, n, group) : 127;
      }
      sums.add_group(memory, g);
#pragma unroll
      for (int i = 0; i < Shape::kRowsEach; ++i) {
#pragma unroll
        for (int j = 0; j < Shape::kOutputsEach; ++j)
          sums.sums[i][j].end_group(x_scale[i], w_scale[j]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < Shape::kRowsEach; ++i) {
#pragma unroll
    for (int j = 0; j < Shape::kOutputsEach; ++j) {
      const int n = first + Sums::output(j);
      if (Sums::row(i) < count && n < last) store(Sums::row(i), n, sums.sums[i][j].result());
    }
  }
}

}  // namespace di::ops::cuda::canonical
