#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/math.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/linear.h"
#include "ops/cuda/linear_kernel.cuh"
#include "ops/cuda/tensor_map.h"

namespace di::ops::cuda {
namespace {

/// Tokens whose activations should stay in the second-level cache while row tiles pass.
constexpr int kTokenBlock = 2048;

/// Q8 activations as bf16 (times 2^-16), 16 a thread.
__global__ void expand_rows(const uint8_t* codes, const uint8_t* scales, int64_t pieces, uint4* x) {
  let_next_kernel_start();
  wait_for_previous_kernels();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= pieces) return;
  const uint4 q = reinterpret_cast<const uint4*>(codes)[i];
  uint4 out[2];
  expand_activations(q, scales[i / 2], out);
  x[2 * i] = out[0];
  x[2 * i + 1] = out[1];
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

/// Whether bf16 results can leave as whole tiles.
bool can_store_tiles(const LinearArgs& args) {
  return args.slices == 1 && args.y_f32 == nullptr && args.rows % 8 == 0 &&
         reinterpret_cast<uintptr_t>(args.y) % 16 == 0 &&
         (args.groups == 1 || args.group_rows % kBlockRows == 0);
}

/// Adds the slices' sums that a variant left in scratch.
template <class T>
void launch_add_slices(const LinearArgs& args, cudaStream_t stream) {
  const dim3 grid(
      static_cast<unsigned>(ceil_div(std::min(args.tokens, T::N), 8)),
      static_cast<unsigned>(args.groups * args.group_tiles),
      static_cast<unsigned>(args.token_tiles)
  );
  launch_overlapped("a linear", add_slices<T>, grid, 128, 0, stream, args);
}

/// Runs one variant: the kernel, and the sum of slices where they are units of their own.
template <class T>
void launch(Exec& exec, LinearArgs args, const bf16* x, int64_t x_cols) {
  static const int shared = allow_shared_memory(linear_kernel<T>, T::shared_bytes);
  if constexpr (T::add_slices) args.slices = 1;
  const bool shares_tiles = args.groups > 1 && args.group_rows % kBlockRows != 0;
  const int64_t tiles = row_tiles(args.group_rows) + (shares_tiles ? 1 : 0);
  args.group_tiles = static_cast<int>(align_up(tiles, T::consumers));
  args.token_tiles = static_cast<int>(ceil_div(args.tokens, T::N));
  args.token_block = std::min(args.token_tiles, std::max(1, kTokenBlock / T::N));
  args.units = args.groups * args.group_tiles / T::consumers * args.token_tiles * args.slices;
  const Arena::Scope scope(exec.scratch);
  if (args.slices > 1) {
    const int64_t pieces = int64_t{args.token_tiles} * args.groups * args.group_tiles * args.slices;
    args.partial = exec.scratch.take<float4>(pieces * (T::N / 8 * 128));
  }
  CUtensorMap x_map{};
  CUtensorMap y_map{};
  if constexpr (!T::q8) x_map = bf16_tile_map(x, args.tokens, args.groups, x_cols, T::N);
  if (T::y_bytes != 0 && can_store_tiles(args)) {
    args.stores_tiles = true;
    y_map = bf16_tile_map(args.y, args.tokens, 1, args.rows, T::N);
  }
  const dim3 grid(static_cast<unsigned>(std::min(args.units, num_sms())));
  launch_overlapped(
      "a linear", linear_kernel<T>, grid, T::threads, shared, exec.stream, args, x_map, y_map
  );
  if (args.slices > 1) launch_add_slices<T>(args, exec.stream);
}

/// Up to 64 tokens: four row tiles a CTA, one token tile, slices as units of their own.
template <WeightFormat kFormat>
void run_few(Exec& exec, const LinearArgs& args, const bf16* x, int64_t x_cols) {
  if (args.tokens <= 8) {
    launch<LinearTraits<kFormat, 8, 4, false, false>>(exec, args, x, x_cols);
  } else if (args.tokens <= 16) {
    launch<LinearTraits<kFormat, 16, 4, false, false>>(exec, args, x, x_cols);
  } else if (args.tokens <= 32) {
    launch<LinearTraits<kFormat, 32, 4, false, false>>(exec, args, x, x_cols);
  } else {
    launch<LinearTraits<kFormat, 64, 4, false, false>>(exec, args, x, x_cols);
  }
}

/// Rounds of the device's CTAs over units of two row tiles and so many tokens, times what one
/// costs.
int64_t cost(const LinearArgs& args, int64_t tokens) {
  const int64_t sets = args.groups * ceil_div(row_tiles(args.group_rows), 2);
  return ceil_div(sets * ceil_div(args.tokens, tokens), num_sms()) * (tokens + 32);
}

/// More tokens: two row tiles a CTA, which adds its slices in registers.
template <WeightFormat kFormat>
void run_many(Exec& exec, const LinearArgs& args, const bf16* x, int64_t x_cols) {
  if (args.slices > 1) {
    if (cost(args, 64) < cost(args, 128)) {
      launch<LinearTraits<kFormat, 64, 2, false, true>>(exec, args, x, x_cols);
    } else {
      launch<LinearTraits<kFormat, 128, 2, false, true>>(exec, args, x, x_cols);
    }
  } else if (cost(args, 128) < cost(args, 256)) {
    launch<LinearTraits<kFormat, 128, 2, false, false>>(exec, args, x, x_cols);
  } else {
    launch<LinearTraits<kFormat, 256, 2, false, false>>(exec, args, x, x_cols);
  }
}

LinearArgs arguments(const Weight& w, int64_t tokens, int64_t groups) {
  const KSlices slices = k_slices(w.rows, w.cols);
  LinearArgs args{};
  args.weights = w.data;
  args.y_factor = 1;
  args.unscale = w.format == WeightFormat::kBf16 ? 1.0f : 0x1p32f;
  args.tokens = static_cast<int>(tokens);
  args.rows = static_cast<int>(w.rows);
  args.cols = static_cast<int>(w.cols);
  args.chunks = static_cast<int>(column_chunks(w.cols));
  args.slice_chunks = slices.chunks;
  args.slices = slices.count;
  args.groups = static_cast<int>(groups);
  args.group_rows = static_cast<int>(w.rows / groups);
  return args;
}

[[noreturn]] void refuse(const char* op, const Weight& w) {
  throw Error(
      ErrorCode::kUnsupported,
      std::string(op) + " of the cuda backend: no kernel for this matrix of " +
          std::to_string(w.rows) + " x " + std::to_string(w.cols)
  );
}

template <WeightFormat kFormat>
void run_plain(Exec& exec, const LinearArgs& args, const bf16* x, int64_t x_cols) {
  if (args.tokens <= 64) {
    run_few<kFormat>(exec, args, x, x_cols);
  } else {
    run_many<kFormat>(exec, args, x, x_cols);
  }
}

/// Few codes are expanded by the kernel that needs them, many by one before it.
template <WeightFormat kFormat>
void run_q8(Exec& exec, const LinearArgs& args) {
  if (args.tokens <= 8)
    return launch<LinearTraits<kFormat, 8, 4, true, false>>(exec, args, nullptr, 0);
  if (args.tokens <= 16)
    return launch<LinearTraits<kFormat, 16, 4, true, false>>(exec, args, nullptr, 0);
  const Arena::Scope scope(exec.scratch);
  const int64_t count = static_cast<int64_t>(args.tokens) * args.cols;
  bf16* x = exec.scratch.take<bf16>(count);
  launch_overlapped(
      "a linear",
      expand_rows,
      dim3(static_cast<unsigned>(ceil_div(count / 16, 256))),
      256,
      0,
      exec.stream,
      args.codes,
      args.scales,
      count / 16,
      reinterpret_cast<uint4*>(x)
  );
  run_plain<kFormat>(exec, args, x, args.cols);
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
  length = std::min(length, chunks);
  return {static_cast<int>(length), static_cast<int>(ceil_div(chunks, length))};
}

void linear_q8(Exec& exec, const LinearQ8& op) {
  if (op.y.empty()) return;
  LinearArgs args = arguments(op.w, op.y.dim(0), 1);
  args.codes = op.x.codes.data;
  args.scales = op.x.scales.data;
  args.y = op.y.data;
  args.unscale *= 0x1p16f;
  switch (op.w.format) {
    case WeightFormat::kFp8: return run_q8<WeightFormat::kFp8>(exec, args);
    case WeightFormat::kFp4: return run_q8<WeightFormat::kFp4>(exec, args);
    default: refuse("linear_q8", op.w);
  }
}

void linear(Exec& exec, const Linear& op) {
  if (op.x.dim(0) == 0 || op.w.rows == 0) return;
  LinearArgs args = arguments(op.w, op.x.dim(0), op.groups);
  args.y = op.y.data;
  args.y_f32 = op.y_f32.data;
  args.y_factor = op.y_factor;
  const Arena::Scope scope(exec.scratch);
  const bf16* x = op.x.data;
  int64_t x_cols = op.w.cols;
  if (x_cols % 8 != 0 || reinterpret_cast<uintptr_t>(x) % 16 != 0) {
    x_cols = align_up(x_cols, 8);
    const int64_t count = op.x.dim(0) * op.groups * x_cols;
    bf16* padded = exec.scratch.take<bf16>(count);
    launch_overlapped(
        "a linear",
        pad_groups,
        dim3(static_cast<unsigned>(ceil_div(count, 256))),
        256,
        0,
        exec.stream,
        x,
        count,
        op.w.cols,
        x_cols,
        padded
    );
    x = padded;
  }
  switch (op.w.format) {
    case WeightFormat::kFp8: return run_plain<WeightFormat::kFp8>(exec, args, x, x_cols);
    case WeightFormat::kBf16: return run_plain<WeightFormat::kBf16>(exec, args, x, x_cols);
    default: refuse("linear", op.w);
  }
}

}  // namespace di::ops::cuda
