// Table lookup and gate of the n-gram memory.
#include <optional>

#include "ops/canonical.h"
#include "ops/ref/ref.h"

namespace di::ops::ref {
namespace {

/// ⟨h · (q · k), key⟩: products rounded to fp32 left to right, summed in double.
double gate_dot(const bf16* h, const bf16* q, const bf16* k, const bf16* key, int64_t width) {
  return interleaved_sum(width, [=](int64_t d) {
    return to_float(h[d]) * (to_float(q[d]) * to_float(k[d])) * to_float(key[d]);
  });
}

/// The compressed id of the token at `position`, or nothing at an image or before the sequence.
std::optional<int64_t> compressed_id(
    const EngramHash& op, const SequenceRows& sequence, int64_t position
) {
  if (position < 0) return std::nullopt;
  if (sequence.is_image != nullptr && sequence.is_image[position] != 0) return std::nullopt;
  return op.token_map(sequence.tokens[position]);
}

}  // namespace

void engram_hash(const EngramHash& op, RowRange range) {
  const int64_t orders = op.multipliers.dim(0) - 1;
  const int64_t heads = op.primes.dim(0) / orders;
  for (int64_t row = range.begin; row < range.end; ++row) {
    const SequenceRows& sequence =
        op.rows.sequences[static_cast<std::size_t>(op.rows.sequence_of(row))];
    bool blocked = false;
    int64_t mixed = 0;
    for (int64_t back = 0; back <= orders; ++back) {
      const auto id =
          blocked ? std::nullopt : compressed_id(op, sequence, op.rows.positions(row) - back);
      blocked = !id.has_value();
      mixed ^= id.value_or(op.pad) * op.multipliers(back);
      for (int64_t n = (back - 1) * heads; n >= 0 && n < back * heads; ++n)
        op.ids(row, n) = mixed % op.primes(n) + op.offsets(n);
    }
  }
}

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
  const int64_t streams = op.h.dim(1);
  const int64_t width = op.h.dim(2);
  for (int64_t row = range.begin; row < range.end; ++row) {
    const bf16* value = op.kv.row(row) + streams * width;
    const bool is_image = !op.is_image.empty() && op.is_image(row) != 0;
    for (int64_t c = 0; c < streams; ++c) {
      bf16* h = &op.h(row, c, 0);
      const bf16* key = op.kv.row(row) + c * width;
      const EngramSums sums = {
          .dot = gate_dot(h, op.q_weight.row(c), op.k_weight.row(c), key, width),
          .h_squares = sum_of_squares(h, width),
          .key_squares = sum_of_squares(key, width)};
      const float gate = is_image ? 0.0f : engram_gate_of(sums, width);
      if (!op.gate.empty()) op.gate(row, c) = gate;
      for (int64_t d = 0; d < width; ++d) {
        h[d] = to_bf16(to_float(h[d]) + gate * to_float(value[d]));
      }
    }
  }
}

}  // namespace di::ops::ref
