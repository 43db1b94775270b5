#include "ops/cpu/rowwise.h"

#include <algorithm>
#include <vector>

#include "ops/canonical.h"
#include "ops/cpu/by_rows.h"
#include "ops/ref/ref.h"

namespace di::ops::cpu {
namespace {

/// Columns that are worth a thread of their own, by how much is done for each.
constexpr int64_t kLightColumns = 4096;
constexpr int64_t kHeavyColumns = 1024;

const uint16_t* bits(const bf16* x) {
  return &x->bits;
}
uint16_t* bits(bf16* x) {
  return &x->bits;
}

/// Whether the kernels' registers divide a width.
bool fits(int64_t width) {
  return width > 0 && width % 32 == 0;
}

template <class Op, class Run>
void or_reference(
    Exec& exec, const Op& op, void (*reference)(const Op&, RowRange), bool fast, const Run& run
) {
  if (fast) return run();
  split_rows(exec, ref::pieces(op), [&](RowRange range) { reference(op, range); });
}

void gate_row(const RowKernels& kernels, const EngramGate& op, int64_t row, int64_t stream) {
  const int64_t width = op.h.dim(2);
  const bool is_image = !op.is_image.empty() && op.is_image(row) != 0;
  uint16_t* h = bits(&op.h(row, stream, 0));
  const uint16_t* key = bits(op.kv.row(row) + stream * width);
  const uint16_t* value = bits(op.kv.row(row) + op.h.dim(1) * width);
  const EngramSums sums = {
      .dot = kernels.gate_dot(
          h, bits(op.q_weight.row(stream)), bits(op.k_weight.row(stream)), key, width
      ),
      .h_squares = kernels.sum_of_squares(h, width),
      .key_squares = kernels.sum_of_squares(key, width)};
  const float gate = is_image ? 0.0f : engram_gate_of(sums, width);
  if (!op.gate.empty()) op.gate(row, stream) = gate;
  kernels.add_scaled(h, value, gate, width);
}

/// The rotation of one position.
void rotate_row(
    const RowKernels& kernels, const Rope& op, int64_t row, std::vector<float>& angles
) {
  const int64_t pairs = op.frequencies.dim(0);
  float* cosine = angles.data();
  float* sine = cosine + pairs;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    const Rotation turn = rotation(op.positions(row), op.frequencies(pair), op.inverse);
    cosine[pair] = turn.cosine;
    sine[pair] = turn.sine;
  }
  const int64_t first = op.x.dim(2) - 2 * pairs;
  for (int64_t head = 0; head < op.x.dim(1); ++head)
    kernels.rotate(bits(&op.x(row, head, first)), cosine, sine, pairs);
}

}  // namespace

void quantize_fp8(const RowKernels& kernels, Exec& exec, const QuantizeFp8& op) {
  split_columns(
      exec,
      op.x.dim(0),
      op.x.dim(1),
      kLightColumns,
      [&](int64_t row, int64_t begin, int64_t end) {
        kernels.quantize_q8(
            bits(op.x.row(row) + begin),
            (end - begin) / 32,
            op.codes.row(row) + begin,
            op.scales.row(row) + begin / 32
        );
      }
  );
}

void quantize_mxfp4(const RowKernels& kernels, Exec& exec, const QuantizeMxFp4& op) {
  split_columns(
      exec,
      op.x.dim(0),
      op.x.dim(1),
      kLightColumns,
      [&](int64_t row, int64_t begin, int64_t end) {
        kernels.quantize_q4m(
            bits(op.x.row(row) + begin),
            (end - begin) / 32,
            op.codes.row(row) + begin / 2,
            op.scales.row(row) + begin / 32
        );
      }
  );
}

void window_records(const RowKernels& kernels, Exec& exec, const WindowRecords& op) {
  const int64_t dim = op.kv.dim(1);
  split_rows(exec, op.kv.dim(0), [&](RowRange range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      uint8_t* record = op.records.row(row);
      kernels.quantize_q8(bits(op.kv.row(row)), dim / 32, record, record + dim);
    }
  });
}

void rms_norm(const RowKernels& kernels, Exec& exec, const RmsNorm& op) {
  const int64_t width = op.x.dim(1);
  or_reference(exec, op, ref::rms_norm, fits(width), [&] {
    split_rows(exec, op.x.dim(0), [&](RowRange range) {
      for (int64_t row = range.begin; row < range.end; ++row) {
        const uint16_t* x = bits(op.x.row(row));
        const double sum = kernels.sum_of_squares(x, width);
        const float factor = inverse_rms_of_sum(sum, width, op.eps);
        kernels.apply_norm(bits(op.y.row(row)), x, bits(op.weight.data), factor, width);
        if (op.codes.empty()) continue;
        kernels.quantize_q8(bits(op.y.row(row)), width / 32, op.codes.row(row), op.scales.row(row));
      }
    });
  });
}

void rope(const RowKernels& kernels, Exec& exec, const Rope& op) {
  const int64_t pairs = op.frequencies.dim(0);
  or_reference(exec, op, ref::rope, pairs % 8 == 0, [&] {
    split_rows(exec, op.x.dim(0), [&](RowRange range) {
      std::vector<float> angles(static_cast<std::size_t>(2 * pairs));
      for (int64_t row = range.begin; row < range.end; ++row)
        rotate_row(kernels, op, row, angles);
    });
  });
}

void window_keys(const RowKernels& kernels, Exec& exec, const WindowKeys& op) {
  if (!op.query.x.empty()) rms_norm(kernels, exec, op.query);
  const View<bf16, 3> heads(op.kv.data, op.kv.dim(0), 1, op.kv.dim(1));
  rms_norm(kernels, exec, {.y = op.kv, .x = op.kv, .weight = op.norm, .eps = op.eps});
  rope(kernels, exec, {.x = heads, .positions = op.positions, .frequencies = op.frequencies});
  window_records(kernels, exec, {.records = op.records, .kv = op.kv});
}

void engram_lookup(const RowKernels& kernels, Exec& exec, const EngramLookup& op) {
  const int64_t width = op.table.head_dim;
  or_reference(exec, op, ref::engram_lookup, fits(width), [&] {
    const int64_t lookups = op.ids.dim(1);
    split_rows(exec, op.ids.dim(0) * lookups, [&](RowRange range) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        const int64_t id = op.ids(i / lookups, i % lookups);
        kernels.dequantize_fp8(
            op.table.codes + id * width,
            op.table.scales + id * (width / 32),
            width / 32,
            bits(op.y.row(i / lookups) + i % lookups * width)
        );
      }
    });
  });
}

void engram_gate(const RowKernels& kernels, Exec& exec, const EngramGate& op) {
  or_reference(exec, op, ref::engram_gate, fits(op.h.dim(2)), [&] {
    const int64_t streams = op.h.dim(1);
    split_rows(exec, op.h.dim(0) * streams, [&](RowRange range) {
      for (int64_t i = range.begin; i < range.end; ++i)
        gate_row(kernels, op, i / streams, i % streams);
    });
  });
}

void mhc_mix_rows(const RowKernels& kernels, Exec& exec, const MhcMix& op) {
  const int64_t width = op.h.stride();
  split_rows(exec, op.h.dim(0), [&](RowRange range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      const bf16* h = op.h.row(row);
      const float factor =
          fits(width)
              ? inverse_rms_of_sum(kernels.sum_of_squares(bits(h), width), width, op.norm_eps)
              : inverse_rms(h, width, op.norm_eps);
      ref::mhc_mix_row(op, row, factor);
    }
  });
}

void mhc_collapse(const RowKernels& kernels, Exec& exec, const MhcCollapse& op) {
  const int64_t width = op.x.dim(1);
  const auto slice = [&](int64_t row, int64_t begin, int64_t end) {
    kernels.collapse(
        {.x = bits(op.x.row(row) + begin),
         .h = bits(op.h.row(row) + begin),
         .a = op.a.row(row),
         .streams = op.h.dim(1),
         .stride = width,
         .width = end - begin}
    );
  };
  or_reference(exec, op, ref::mhc_collapse, fits(width), [&] {
    split_columns(exec, op.x.dim(0), width, kLightColumns, slice);
  });
}

namespace {

/// comb of every row behind its Sinkhorn passes, in scratch of the caller's scope.
View<const float, 3> finished_comb(Exec& exec, const MhcExpand& op) {
  if (op.sinkhorn_iters == 0) return op.comb;
  const int64_t c = op.comb.dim(1);
  const auto comb = exec.scratch.array<float>(op.comb.dim(0), c, c);
  split_rows(exec, comb.dim(0), [&](RowRange range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      std::copy_n(op.comb.row(row), c * c, comb.row(row));
      ref::sinkhorn(comb.row(row), c, op.sinkhorn_iters, op.hc_eps);
    }
  });
  return comb;
}

}  // namespace

void mhc_expand(const RowKernels& kernels, Exec& exec, const MhcExpand& op) {
  const Arena::Scope scope(exec.scratch);
  const View<const float, 3> comb = finished_comb(exec, op);
  const int64_t width = op.y.dim(1);
  const auto slice = [&](int64_t row, int64_t begin, int64_t end) {
    kernels.expand(
        {.out = bits(op.h_out.row(row) + begin),
         .y = bits(op.y.row(row) + begin),
         .h = bits(op.h.row(row) + begin),
         .post = op.post.row(row),
         .comb = comb.row(row),
         .streams = op.h.dim(1),
         .stride = width,
         .width = end - begin}
    );
  };
  or_reference(exec, op, ref::mhc_expand, fits(width), [&] {
    split_columns(exec, op.y.dim(0), width, kHeavyColumns, slice);
  });
}

void swiglu(const RowKernels& kernels, Exec& exec, const SwiGlu& op) {
  const int64_t width = op.u.dim(1);
  const auto slice = [&](int64_t row, int64_t begin, int64_t end) {
    kernels.swiglu(
        {.u = bits(op.u.row(row) + begin),
         .gate = bits(op.gate.row(row) + begin),
         .up = bits(op.up.row(row) + begin),
         .weight = op.weights.empty() ? nullptr : &op.weights(row),
         .limit = op.limit,
         .width = end - begin}
    );
  };
  or_reference(exec, op, ref::swiglu, fits(width), [&] {
    split_columns(exec, op.u.dim(0), width, kHeavyColumns, slice);
  });
}

}  // namespace di::ops::cpu
