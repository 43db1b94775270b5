// A warp takes a row and keeps it in registers from the raw key to its record, another one the
// row's query; the launch is what it costs.
#include "ops/cuda/launch_overlapped.cuh"
#include "ops/cuda/norm.h"
#include "ops/cuda/norm_row.cuh"
#include "ops/cuda/scalars.cuh"
#include "ops/cuda/shapes.h"
#include "ops/cuda/vectors.cuh"
#include "ops/cuda/window_keys.h"

namespace di::ops::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarp = 32;
constexpr int kStride = kWarp * kVector;  ///< channels that a warp takes at a time
constexpr int kKept = 4;                  ///< vectors of a lane at most
using QueryRow = NormRow<kWarp, 5>;

struct Arrays {
  uint8_t* records;
  const bf16* kv;
  const bf16* norm;
  const int64_t* positions;
  const float* frequencies;
  int64_t record_bytes;
  int rows;
  int dim;
  int pairs;
  float eps;
};

/// Channels [d, d + 8) rotated, those in front of the rotated part unchanged. `rotations` are those
/// of all pairs.
__device__ void rotate_vector(
    const Arrays& arrays, const float2* rotations, int d, float (&x)[kVector]
) {
  const int first = arrays.dim - 2 * arrays.pairs;
  if (d < first) return;
#pragma unroll
  for (int i = 0; i < kVector; i += 2) {
    const float2 r = rotations[(d + i - first) / 2];
    const float a = x[i];
    const float b = x[i + 1];
    x[i] = a * r.x - b * r.y;
    x[i + 1] = a * r.y + b * r.x;
  }
}

/// Block y: 0 takes the keys, 1 the queries.
__global__ void __launch_bounds__(kThreads) window_keys_kernel(Arrays arrays, NormArrays query) {
  extern __shared__ float2 all_rotations[];
  const int row = blockIdx.x * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= arrays.rows) return;
  if (blockIdx.y == 1) {
    QueryRow norm(query);
    join_kernel_chain();
    norm.run(query, row, nullptr);
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  uint4 norm[kKept];
#pragma unroll
  for (int v = 0; v < kKept; ++v) {
    const int d = v * kStride + lane * kVector;
    norm[v] = d < arrays.dim ? load_vector(arrays.norm + d) : uint4{};
  }
  join_kernel_chain();
  const bf16* kv = arrays.kv + static_cast<int64_t>(row) * arrays.dim;
  float x[kKept][kVector] = {};
  double sum = 0;
#pragma unroll
  for (int v = 0; v < kKept; ++v) {
    const int d = v * kStride + lane * kVector;
    if (d >= arrays.dim) break;
    unpack(load_vector(kv + d), x[v]);
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      sum += x[v][i] * x[v][i];
  }
  float2* rotations = all_rotations + threadIdx.x / kWarp * arrays.pairs;
  for (int pair = lane; pair < arrays.pairs; pair += kWarp)
    rotations[pair] = rotation(arrays.positions[row], arrays.frequencies[pair], false);
  __syncwarp();
  const float factor = inverse_rms_of_sum(sum_over_warp(sum), arrays.dim, arrays.eps);
  uint8_t* record = arrays.records + row * arrays.record_bytes;
#pragma unroll
  for (int v = 0; v < kKept; ++v) {
    if (v * kStride >= arrays.dim) break;  // the whole warp
    const int d = v * kStride + lane * kVector;
    const bool inside = d < arrays.dim;
    float weights[kVector];
    unpack(norm[v], weights);
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      x[v][i] = weights[i] * (x[v][i] * factor);
    unpack(pack(x[v]), x[v]);
    if (inside) rotate_vector(arrays, rotations, d, x[v]);
    unpack(pack(x[v]), x[v]);
    const Q8Vector q8 = quantize_q8(x[v]);
    if (!inside) continue;
    store_words(record + d, {q8.codes.x, q8.codes.y});
    if (d % 32 == 0) record[arrays.dim + d / 32] = q8.scale;
  }
}

}  // namespace

void window_keys(Exec& exec, const WindowKeys& op) {
  const int64_t dim = op.kv.dim(1);
  const int64_t pairs = op.frequencies.dim(0);
  need_multiple("window_keys: dim", dim, 32);
  need_at_most("window_keys: dim", dim, int64_t{kKept} * kStride);
  need_multiple("window_keys: rotated channels", 2 * pairs, kVector);
  const auto rows = static_cast<int>(op.kv.dim(0));
  if (rows == 0) return;
  const Arrays arrays{
      .records = op.records.data,
      .kv = op.kv.data,
      .norm = op.norm.data,
      .positions = op.positions.data,
      .frequencies = op.frequencies.data,
      .record_bytes = op.records.dim(1),
      .rows = rows,
      .dim = static_cast<int>(dim),
      .pairs = static_cast<int>(pairs),
      .eps = op.eps};
  const bool has_query = !op.query.x.empty();
  const bool takes_query = has_query && op.query.x.dim(1) <= QueryRow::kMaxWidth;
  if (has_query && !takes_query) rms_norm(exec, op.query);
  if (takes_query) {
    need_multiple("rms_norm: width", op.query.x.dim(1), kScaleGroup);
    need_equal("window_keys: rows of queries", op.query.x.dim(0), rows);
  }
  launch_overlapped(
      "window_keys",
      window_keys_kernel,
      dim3(blocks_of(rows, kThreads / kWarp), takes_query ? 2 : 1),
      kThreads,
      kThreads / kWarp * arrays.pairs * static_cast<int>(sizeof(float2)),
      exec.stream,
      arrays,
      norm_arrays(op.query)
  );
}

}  // namespace di::ops::cuda
