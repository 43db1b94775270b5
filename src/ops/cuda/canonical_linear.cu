#include <string>

#include "base/error.h"
#include "ops/cuda/canonical_linear.h"
#include "ops/cuda/canonical_product.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda::canonical {
namespace {

/// From this many rows on, tiles of many pay.
constexpr int64_t kManyRows = 16;

/// Where results go: fp32, or bf16 times a factor.
struct Results {
  bf16* y;
  float* y_f32;
  float factor;

  __device__ void put(int64_t i, float sum) const {
    if (y_f32 != nullptr) {
      y_f32[i] = sum;
    } else {
      const bf16 rounded = to_bf16(sum);
      y[i] = factor == 1.0f ? rounded : to_bf16(to_float(rounded) * factor);
    }
  }
};

/// Block (x, y, z): tile x of the outputs and tile y of the rows of group z.
template <class Shape, class Product>
__global__ void __launch_bounds__(kThreads)
    multiply(Product product, Matrix w, Results results, int rows) {
  __shared__ TileMemory<Shape> memory;
  const int group_outputs = w.rows / static_cast<int>(gridDim.z);
  const int begin = static_cast<int>(blockIdx.z) * group_outputs;
  const int first = begin + static_cast<int>(blockIdx.x) * Shape::kOutputs;
  const int last = min(first + Shape::kOutputs, begin + group_outputs);
  const int first_row = static_cast<int>(blockIdx.y) * Shape::kRows;
  // A group's columns follow those of the group before it.
  const int64_t groups = gridDim.z;
  multiply_tile<Shape>(
      product,
      w,
      first,
      last,
      min(Shape::kRows, rows - first_row),
      memory,
      [&](int i) { return (first_row + i) * groups + blockIdx.z; },
      [&](int i, int n, float sum) { results.put(int64_t{first_row + i} * w.rows + n, sum); }
  );
}

template <class Shape, class Product>
void launch(
    Exec& exec,
    const Product& product,
    const Matrix& w,
    const Results& results,
    int64_t rows,
    int64_t groups
) {
  const dim3 grid(
      blocks_of(w.rows / groups, Shape::kOutputs),
      blocks_of(rows, Shape::kRows),
      static_cast<unsigned>(groups)
  );
  multiply<Shape><<<grid, kThreads, 0, exec.stream>>>(product, w, results, static_cast<int>(rows));
  check_launch("a linear");
}

template <class Product>
void run(
    Exec& exec,
    const Product& product,
    const Weight& w,
    const Results& results,
    int64_t rows,
    int64_t groups = 1
) {
  if (rows == 0 || w.rows == 0) return;
  if (rows >= kManyRows) {
    launch<ManyRows>(exec, product, matrix_of(w), results, rows, groups);
  } else {
    launch<FewRows>(exec, product, matrix_of(w), results, rows, groups);
  }
}

[[noreturn]] void refuse(const char* op, const Weight& w) {
  throw Error(
      ErrorCode::kUnsupported,
      std::string(op) + " in canonical arithmetic: no kernel for this format of a matrix of " +
          std::to_string(w.rows) + " x " + std::to_string(w.cols)
  );
}

template <WeightFormat kFormat>
void run_q8(Exec& exec, const LinearQ8& op) {
  const Q8Product<kFormat> product{
      .codes = op.x.codes.data, .scales = op.x.scales.data, .stride = op.w.cols};
  run(exec, product, op.w, {.y = op.y.data, .y_f32 = nullptr, .factor = 1}, op.y.dim(0));
}

template <WeightFormat kFormat>
void run_plain(Exec& exec, const Linear& op) {
  const PlainProduct<kFormat> product{.x = op.x.data, .stride = op.w.cols};
  const Results results{.y = op.y.data, .y_f32 = op.y_f32.data, .factor = op.y_factor};
  run(exec, product, op.w, results, op.x.dim(0), op.groups);
}

}  // namespace

void linear_q8(Exec& exec, const LinearQ8& op) {
  need_multiple("linear_q8: columns", op.w.cols, kScaleGroup);
  switch (op.w.format) {
    case WeightFormat::kFp4: return run_q8<WeightFormat::kFp4>(exec, op);
    case WeightFormat::kFp8: return run_q8<WeightFormat::kFp8>(exec, op);
    default: refuse("linear_q8", op.w);
  }
}

void linear(Exec& exec, const Linear& op) {
  switch (op.w.format) {
    case WeightFormat::kFp8: run_plain<WeightFormat::kFp8>(exec, op); break;
    case WeightFormat::kBf16: run_plain<WeightFormat::kBf16>(exec, op); break;
    case WeightFormat::kF32: run_plain<WeightFormat::kF32>(exec, op); break;
    default: refuse("linear", op.w);
  }
  if (!op.codes.empty()) quantize_fp8(exec, {.codes = op.codes, .scales = op.scales, .x = op.y});
}

void linear_set(Exec& exec, const LinearSet& op) {
  for (const LinearQ8& q8 : op.q8)
    linear_q8(exec, q8);
  for (const Linear& plain : op.plain)
    linear(exec, plain);
}

}  // namespace di::ops::cuda::canonical
