#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/math.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/linear.h"
#include "ops/cuda/linear_narrow.h"
#include "ops/cuda/linear_variants.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/packing.h"
#include "ops/cuda/pipeline.cuh"
#include "ops/cuda/unpack.cuh"

namespace di::ops::cuda {
namespace {

thread_local int other_chunks = 0;  // of a slice, when there is an OtherSlices

constexpr int kExpandThreads = 256;
constexpr int kExpandPieces = 4;

/// Q8 activations as bf16 (times 2^-16): four pieces of 8 a thread, so that a warp's accesses are
/// whole lines.
__global__ void __launch_bounds__(kExpandThreads)
    expand_rows(const uint8_t* codes, const uint8_t* scales, int64_t pieces, uint4* x) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int64_t first = int64_t{blockIdx.x} * (kExpandThreads * kExpandPieces) + threadIdx.x;
  uint2 q[kExpandPieces];
  uint8_t scale[kExpandPieces];
#pragma unroll
  for (int p = 0; p < kExpandPieces; ++p) {
    const int64_t i = first + p * kExpandThreads;
    if (i >= pieces) break;
    q[p] = reinterpret_cast<const uint2*>(codes)[i];
    scale[p] = scales[i / 4];
  }
#pragma unroll
  for (int p = 0; p < kExpandPieces; ++p) {
    const int64_t i = first + p * kExpandThreads;
    if (i >= pieces) break;
    x[i] = expand_activations(q[p], scale[p]);
  }
}

/// bf16 rows whose groups do not begin at multiples of 16 bytes, with zeros behind each group.
__global__ void pad_groups(
    const bf16* from, int64_t count, int64_t cols, int64_t padded, bf16* to
) {
  wait_for_previous_kernels();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t col = i % padded;
  to[i] = col < cols ? from[i / padded * cols + col] : bf16{};
}

LinearArgs arguments(const Weight& w, int64_t tokens, int64_t groups) {
  const KSlices slices = k_slices(w.rows, w.cols);
  LinearArgs args{};
  args.weights = w.data;
  args.format = w.format;
  args.y_factor = 1;
  args.unscale = w.format == WeightFormat::kBf16 ? 1.0f : 0x1p32f;
  args.tokens = static_cast<int>(tokens);
  args.rows = static_cast<int>(w.rows);
  args.cols = static_cast<int>(w.cols);
  args.chunks = static_cast<int>(column_chunks(w.cols));
  args.slices = slices.count;
  args.slice_chunks = slices.chunks;
  args.parts = static_cast<int>(ceil_div(slices.count, slices.part));
  args.part_slices = slices.part;
  args.groups = static_cast<int>(groups);
  args.group_rows = static_cast<int>(w.rows / groups);
  args.last_row = args.rows;
  return args;
}

[[noreturn]] void refuse(const char* op, const Weight& w) {
  throw Error(
      ErrorCode::kUnsupported,
      std::string(op) + " of the cuda backend: no kernel for this matrix of " +
          std::to_string(w.rows) + " x " + std::to_string(w.cols)
  );
}

/// Copies the rows of `args` with whole pieces of 16 bytes where theirs are not.
void align_rows(Exec& exec, LinearArgs& args) {
  args.x_cols = args.cols;
  if (args.cols % 8 == 0 && reinterpret_cast<uintptr_t>(args.x) % 16 == 0) return;
  args.x_cols = static_cast<int>(align_up(args.cols, 8));
  const int64_t count = int64_t{args.tokens} * args.groups * args.x_cols;
  bf16* padded = exec.scratch.take<bf16>(count);
  launch_overlapped(
      "a linear",
      pad_groups,
      dim3(static_cast<unsigned>(ceil_div(count, 256))),
      256,
      0,
      exec.stream,
      args.x,
      count,
      int64_t{args.cols},
      int64_t{args.x_cols},
      padded
  );
  args.x = padded;
}

/// Replaces the codes of `args` by their values, in scratch of the caller's scope.
void expand_codes(Exec& exec, LinearArgs& args) {
  const int64_t count = int64_t{args.tokens} * args.cols;
  bf16* x = exec.scratch.take<bf16>(count);
  launch_overlapped(
      "a linear",
      expand_rows,
      dim3(static_cast<unsigned>(ceil_div(count / 8, kExpandThreads * kExpandPieces))),
      kExpandThreads,
      0,
      exec.stream,
      args.codes,
      args.scales,
      count / 8,
      reinterpret_cast<uint4*>(x)
  );
  args.x = x;
  args.x_cols = args.cols;
  args.codes = nullptr;
}

/// Runs a product that is not narrow, whose activations are as the format's kernels want them.
template <WeightFormat kFormat>
void run_wide(Exec& exec, const LinearArgs& args) {
  if constexpr (kFormat != WeightFormat::kBf16) {
    if (args.codes != nullptr) return run_codes<kFormat>(exec, args);
  }
  run_rows<kFormat>(exec, args);
}

/// Runs products of one launch each: those that are not narrow. Neighbours with the same codes
/// share their values.
void run_each(Exec& exec, std::span<LinearArgs> products) {
  const Arena::Scope scope(exec.scratch);
  const uint8_t* expanded = nullptr;
  const bf16* x = nullptr;
  for (LinearArgs& args : products) {
    if (args.codes != nullptr && args.tokens > kMostCodeRows) {
      if (args.codes == expanded) {
        args.x = x;
        args.x_cols = args.cols;
        args.codes = nullptr;
      } else {
        expanded = args.codes;
        expand_codes(exec, args);
        x = args.x;
      }
    }
    switch (args.format) {
      case WeightFormat::kFp4: run_wide<WeightFormat::kFp4>(exec, args); break;
      case WeightFormat::kFp8: run_wide<WeightFormat::kFp8>(exec, args); break;
      default: run_wide<WeightFormat::kBf16>(exec, args);
    }
  }
}

/// Runs products that do not depend on each other.
void run(Exec& exec, std::span<LinearArgs> products) {
  const auto wide = std::partition(products.begin(), products.end(), is_narrow);
  run_narrow(exec, {products.begin(), wide});
  run_each(exec, {wide, products.end()});
}

LinearArgs arguments(const LinearQ8& op) {
  if (op.w.format != WeightFormat::kFp8 && op.w.format != WeightFormat::kFp4)
    refuse("linear_q8", op.w);
  LinearArgs args = arguments(op.w, op.y.dim(0), 1);
  args.codes = op.x.codes.data;
  args.scales = op.x.scales.data;
  args.y = op.y.data;
  args.unscale *= 0x1p16f;
  return args;
}

/// Whether the product's own kernels give the Q8 form of the result.
bool gives_q8(const LinearArgs& args) {
  if (args.y_f32 != nullptr || args.group_rows % kBlockRows != 0) return false;
  return is_narrow(args) ? narrow_gives_q8(args) : args.tokens <= kFewTokens && args.slices > 1;
}

/// May take scratch of the caller's scope.
LinearArgs arguments(Exec& exec, const Linear& op) {
  if (op.w.format != WeightFormat::kFp8 && op.w.format != WeightFormat::kBf16)
    refuse("linear", op.w);
  LinearArgs args = arguments(op.w, op.x.dim(0), op.groups);
  args.y = op.y.data;
  args.y_f32 = op.y_f32.data;
  args.y_factor = op.y_factor;
  args.x = op.x.data;
  align_rows(exec, args);
  if (!op.codes.empty() && gives_q8(args)) {
    args.y_codes = op.codes.data;
    args.y_scales = op.scales.data;
  }
  return args;
}

}  // namespace

KSlices k_slices(int64_t rows, int64_t cols) {
  // Units of one row tile for three quarters of the device's multiplying warpgroups: more of them
  // bring less than their sums cost. Nor does a slice below 256 columns pay.
  constexpr int64_t kUnits = 400;
  constexpr int64_t kShortest = 4;
  const int64_t chunks = column_chunks(cols);
  const int64_t tiles = row_tiles(rows);
  int64_t length = std::min(kShortest, chunks);
  while (length < chunks && tiles * ceil_div(chunks, length) > kUnits)
    length += 2;
  if (other_chunks != 0) length = other_chunks;
  length = std::min(length, chunks);
  // Many slices are for few rows. More rows are cut into four parts at most, whose sums are fewer.
  constexpr int64_t kMostOfOnePart = 6;
  const int64_t count = ceil_div(chunks, length);
  const int64_t part = count <= kMostOfOnePart ? count : ceil_div(count, 4);
  return {static_cast<int>(length), static_cast<int>(count), static_cast<int>(part)};
}

OtherSlices::OtherSlices(int chunks) {
  other_chunks = chunks;
}
OtherSlices::~OtherSlices() {
  other_chunks = 0;
}

void linear_q8(Exec& exec, const LinearQ8& op) {
  linear_set(exec, {.q8 = {&op, 1}, .plain = {}});
}

void linear(Exec& exec, const Linear& op) {
  linear_set(exec, {.q8 = {}, .plain = {&op, 1}});
}

void linear_set(Exec& exec, const LinearSet& op) {
  const Arena::Scope scope(exec.scratch);
  std::vector<LinearArgs> products;
  products.reserve(op.q8.size() + op.plain.size());
  for (const LinearQ8& q8 : op.q8)
    if (!q8.y.empty()) products.push_back(arguments(q8));
  std::vector<QuantizeFp8> quantizations;
  for (const Linear& plain : op.plain) {
    if (plain.x.dim(0) == 0 || plain.w.rows == 0) continue;
    products.push_back(arguments(exec, plain));
    if (!plain.codes.empty() && products.back().y_codes == nullptr)
      quantizations.push_back({.codes = plain.codes, .scales = plain.scales, .x = plain.y});
  }
  run(exec, products);
  for (const QuantizeFp8& quantization : quantizations)
    quantize_fp8(exec, quantization);
}

}  // namespace di::ops::cuda
