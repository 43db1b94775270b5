#include "ops/cuda/canonical_rows.h"
#include "ops/cuda/canonical_sum.cuh"
#include "ops/cuda/engram_gate.cuh"
#include "ops/cuda/kv_store.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/scalars.cuh"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda::canonical {
namespace {

constexpr int kWarps = 4;  // of a block; each takes a row

__device__ int64_t row_of_warp() {
  return int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
}

__global__ void __launch_bounds__(kWarps * 32)
    normalize(bf16* y, const bf16* x, const bf16* weight, int64_t rows, int64_t width, float eps) {
  const int64_t row = row_of_warp();
  if (row >= rows) return;
  x += row * width;
  y += row * width;
  const float factor = inverse_rms_of_sum(sum_of_squares(x, width), width, eps);
  for (int64_t i = threadIdx.x % 32; i < width; i += 32)
    y[i] = to_bf16(to_float(weight[i]) * (to_float(x[i]) * factor));
}

/// A warp takes a stream of a row.
__global__ void __launch_bounds__(kWarps * 32)
    gate_streams(GateArgs op, int64_t rows, int64_t streams) {
  const int64_t i = row_of_warp();
  if (i >= rows * streams) return;
  const int64_t row = i / streams;
  const int64_t c = i % streams;
  bf16* h = op.h + i * op.width;
  const bf16* key = op.kv + (row * (streams + 1) + c) * op.width;
  const bf16* value = op.kv + (row * (streams + 1) + streams) * op.width;
  const bf16* q = op.q_weight + c * op.width;
  const bf16* k = op.k_weight + c * op.width;
  const double dot = interleaved_sum(op.width, [=](int64_t d) {
    return to_float(h[d]) * (to_float(q[d]) * to_float(k[d])) * to_float(key[d]);
  });
  const double h_squares = sum_of_squares(h, op.width);
  const double key_squares = sum_of_squares(key, op.width);
  const bool is_image = op.is_image != nullptr && op.is_image[row] != 0;
  const float gate = is_image ? 0.0f : engram_gate_of(dot, h_squares, key_squares, op.width);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (op.gate != nullptr && lane == 0) op.gate[i] = gate;
  for (int64_t d = lane; d < op.width; d += 32)
    h[d] = to_bf16(to_float(h[d]) + gate * to_float(value[d]));
}

}  // namespace

void rms_norm(Exec& exec, const RmsNorm& op) {
  if (op.x.empty()) return;
  const int64_t rows = op.x.dim(0);
  normalize<<<blocks_of(rows, kWarps), kWarps * 32, 0, exec.stream>>>(
      op.y.data, op.x.data, op.weight.data, rows, op.x.dim(1), op.eps
  );
  check_launch("rms_norm");
  if (!op.codes.empty()) quantize_fp8(exec, {.codes = op.codes, .scales = op.scales, .x = op.y});
}

void window_keys(Exec& exec, const WindowKeys& op) {
  rms_norm(exec, op.query);
  rms_norm(exec, {.y = op.kv, .x = op.kv, .weight = op.norm, .eps = op.eps});
  const View<bf16, 3> heads(op.kv.data, op.kv.dim(0), 1, op.kv.dim(1));
  rope(exec, {.x = heads, .positions = op.positions, .frequencies = op.frequencies});
  window_records(exec, {.records = op.records, .kv = op.kv});
}

void engram_gate(Exec& exec, const EngramGate& op) {
  if (op.h.empty()) return;
  const int64_t rows = op.h.dim(0);
  const int64_t streams = op.h.dim(1);
  gate_streams<<<blocks_of(rows * streams, kWarps), kWarps * 32, 0, exec.stream>>>(
      gate_args_of(op), rows, streams
  );
  check_launch("engram_gate");
}

}  // namespace di::ops::cuda::canonical
