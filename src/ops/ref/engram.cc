// Table lookup and gate of the n-gram memory.
#include "ops/canonical.h"
#include "ops/ref/ref.h"

namespace di::ops::ref {
namespace {

/// ⟨h · (q · k), key⟩: products rounded to fp32 left to right, summed in double.
float gate_dot(const bf16* h, const bf16* q, const bf16* k, const bf16* key, int64_t width) {
  return static_cast<float>(interleaved_sum(width, [=](int64_t d) {
    return to_float(h[d]) * (to_float(q[d]) * to_float(k[d])) * to_float(key[d]);
  }));
}

}  // namespace

void engram_lookup(const EngramLookup& op, RowRange range) {
  const int64_t width = op.table.head_dim;
  const int64_t groups = width / kScaleGroup;
  for (int64_t row = range.begin; row < range.end; ++row) {
    for (int64_t lookup = 0; lookup < op.ids.dim(1); ++lookup) {
      const int64_t id = op.ids(row, lookup);
      const uint8_t* codes = op.table.codes + id * width;
      const uint8_t* scales = op.table.scales + id * groups;
      bf16* y = op.y.row(row) + lookup * width;
      for (int64_t d = 0; d < width; ++d) {
        y[d] = to_bf16(decode_e4m3(codes[d]) * decode_e8m0(scales[d / kScaleGroup]));
      }
    }
  }
}

void engram_gate(const EngramGate& op, RowRange range) {
  constexpr float kEps = 1e-20f;
  constexpr float kSmallestGate = 1e-6f;
  const int64_t streams = op.h.dim(1);
  const int64_t width = op.h.dim(2);
  const auto root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
  for (int64_t row = range.begin; row < range.end; ++row) {
    const bf16* value = op.kv.row(row) + streams * width;
    const bool is_image = !op.is_image.empty() && op.is_image(row) != 0;
    for (int64_t c = 0; c < streams; ++c) {
      bf16* h = &op.h(row, c, 0);
      const bf16* key = op.kv.row(row) + c * width;
      const float dot = gate_dot(h, op.q_weight.row(c), op.k_weight.row(c), key, width);
      const float g = dot * (inverse_rms(h, width, kEps) * inverse_rms(key, width, kEps)) * root;
      const float size = sqrt_f32(std::max(std::fabs(g), kSmallestGate));
      const float gate = is_image ? 0.0f : sigmoid_f32(std::copysign(size, g));
      if (!op.gate.empty()) op.gate(row, c) = gate;
      for (int64_t d = 0; d < width; ++d) {
        h[d] = to_bf16(to_float(h[d]) + gate * to_float(value[d]));
      }
    }
  }
}

}  // namespace di::ops::ref
