// A tile of a matrix product in the arithmetic of the reference: every output is one chain over
// ascending columns, so its bits depend on its row alone, whatever the tile. Columns pass through
// shared memory, decoded to double once for all threads that need them.
#pragma once

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

  /// Without its scale.
  __device__ float code(int64_t row, int col) const {
    const int64_t i = row * cols + col;
    switch (format) {
      case WeightFormat::kFp8: return decode_e4m3(data[i]);
      case WeightFormat::kFp4: return decode_e2m1(data[i / 2] >> (i % 2 * 4) & 15);
      case WeightFormat::kBf16: return to_float(reinterpret_cast<const bf16*>(data)[i]);
      default: return reinterpret_cast<const float*>(data)[i];
    }
  }

  /// Of a group of a row; 1 for formats without scales.
  __device__ float scale(int64_t row, int group) const {
    switch (format) {
      case WeightFormat::kFp8: return decode_e8m0(scales[row / kScaleGroup * groups() + group]);
      case WeightFormat::kFp4: return decode_e8m0(scales[row * groups() + group]);
      default: return 1;
    }
  }
};

inline Matrix matrix_of(const Weight& w) {
  return {
      .data = reinterpret_cast<const uint8_t*>(w.data),
      .scales = scales_of(w),
      .format = w.format,
      .rows = static_cast<int>(w.rows),
      .cols = static_cast<int>(w.cols)};
}

/// What is multiplied for `linear`: bf16 by dequantised weights, which is exact in double; a sum is
/// one chain in double, rounded once.
struct PlainProduct {
  const bf16* x;
  int64_t stride;  ///< elements from one row to the next

  struct Sum {
    double chain = 0;
    __device__ void add(double x, double w) { chain = fma(x, w, chain); }
    __device__ void end_group(float, float) {}
    __device__ float result() const { return static_cast<float>(chain); }
  };

  __device__ float value(int64_t row, int col) const { return to_float(x[row * stride + col]); }
  __device__ float scale(int64_t, int) const { return 1; }
  __device__ static float weight(const Matrix& w, int64_t row, int col) {
    return w.code(row, col) * w.scale(row, col / kGroup);
  }
};

/// What is multiplied for `linear_q8`: codes by codes. The sum of a group is exact in double and
/// rounded once to fp32; it is scaled and added in fp32.
struct Q8Product {
  const uint8_t* codes;
  const uint8_t* scales;
  int64_t stride;  ///< columns of a row

  struct Sum {
    double group = 0;
    float sum = 0;
    __device__ void add(double x, double w) { group = fma(x, w, group); }
    __device__ void end_group(float x_scale, float w_scale) {
      sum += static_cast<float>(group) * x_scale * w_scale;
      group = 0;
    }
    __device__ float result() const { return sum; }
  };

  __device__ float value(int64_t row, int col) const {
    return decode_e4m3(codes[row * stride + col]);
  }
  __device__ float scale(int64_t row, int group) const {
    return decode_e8m0(scales[row * (stride / kScaleGroup) + group]);
  }
  __device__ static float weight(const Matrix& w, int64_t row, int col) { return w.code(row, col); }
};

inline Q8Product q8_product(const uint8_t* codes, const uint8_t* scales, int64_t cols) {
  return {.codes = codes, .scales = scales, .stride = cols};
}

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

/// What a thread decodes of one step, kColumns columns of kLength rows, and keeps in registers
/// until shared memory is free.
template <int kColumns, int kLength>
struct Fetched {
  static constexpr int kEach = kLength * kColumns / kThreads;
  float value[kEach];

  /// value_of(i, column) of the tile's rows i; a warp takes neighbouring columns of one row.
  template <class Value>
  __device__ void fetch(const Value& value_of) {
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      value[j] = value_of(row_of(j), static_cast<int>(threadIdx.x) % kColumns);
  }
  __device__ void store(double (*to)[kLength + 1]) const {
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      to[threadIdx.x % kColumns][row_of(j)] = value[j];
  }

 private:
  __device__ static int row_of(int j) {
    return static_cast<int>(threadIdx.x) / kColumns + j * (kThreads / kColumns);
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
  const int output_thread = static_cast<int>(threadIdx.x) % Shape::kOutputThreads;
  const int row_thread = static_cast<int>(threadIdx.x) / Shape::kOutputThreads;
  const auto output = [&](int j) { return first + output_thread + j * Shape::kOutputThreads; };
  const auto row = [&](int i) { return row_thread + i * Shape::kRowThreads; };

  Fetched<Shape::kColumns, Shape::kRows> x;
  Fetched<Shape::kColumns, Shape::kOutputs> weights;
  const auto fetch = [&](int begin) {
    x.fetch([&](int i, int k) {
      return i < count && begin + k < w.cols ? product.value(row_of(i), begin + k) : 0.0f;
    });
    weights.fetch([&](int n, int k) {
      return first + n < last && begin + k < w.cols ? Product::weight(w, first + n, begin + k)
                                                    : 0.0f;
    });
  };

  typename Product::Sum sums[Shape::kRowsEach][Shape::kOutputsEach];
  fetch(0);
  for (int begin = 0; begin < w.cols; begin += Shape::kColumns) {
    __syncthreads();
    x.store(memory.x);
    weights.store(memory.w);
    __syncthreads();
    float x_scale[Shape::kGroups][Shape::kRowsEach];
    float w_scale[Shape::kGroups][Shape::kOutputsEach];
#pragma unroll
    for (int g = 0; g < Shape::kGroups; ++g) {
      const int group = begin / kGroup + g;
      const bool is_one = group < w.groups();
#pragma unroll
      for (int i = 0; i < Shape::kRowsEach; ++i)
        x_scale[g][i] = is_one && row(i) < count ? product.scale(row_of(row(i)), group) : 1.0f;
#pragma unroll
      for (int j = 0; j < Shape::kOutputsEach; ++j)
        w_scale[g][j] = is_one && output(j) < last ? w.scale(output(j), group) : 1.0f;
    }
    if (begin + Shape::kColumns < w.cols) fetch(begin + Shape::kColumns);
#pragma unroll
    for (int g = 0; g < Shape::kGroups; ++g) {
#pragma unroll 4
      for (int k = g * kGroup; k < (g + 1) * kGroup; ++k) {
        double x_k[Shape::kRowsEach];
        double w_k[Shape::kOutputsEach];
#pragma unroll
        for (int i = 0; i < Shape::kRowsEach; ++i)
          x_k[i] = memory.x[k][row(i)];
#pragma unroll
        for (int j = 0; j < Shape::kOutputsEach; ++j)
          w_k[j] = memory.w[k][output(j) - first];
#pragma unroll
        for (int i = 0; i < Shape::kRowsEach; ++i) {
#pragma unroll
          for (int j = 0; j < Shape::kOutputsEach; ++j)
            sums[i][j].add(x_k[i], w_k[j]);
        }
      }
#pragma unroll
      for (int i = 0; i < Shape::kRowsEach; ++i) {
#pragma unroll
        for (int j = 0; j < Shape::kOutputsEach; ++j)
          sums[i][j].end_group(x_scale[g][i], w_scale[g][j]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < Shape::kRowsEach; ++i) {
#pragma unroll
    for (int j = 0; j < Shape::kOutputsEach; ++j) {
      if (row(i) < count && output(j) < last) store(row(i), output(j), sums[i][j].result());
    }
  }
}

}  // namespace di::ops::cuda::canonical
