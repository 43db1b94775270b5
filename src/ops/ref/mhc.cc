// Hyper-connections: a site's mixes with their Sinkhorn passes, collapse and expand.
#include <algorithm>
#include <vector>

#include "ops/canonical.h"
#include "ops/ref/ref.h"

namespace di::ops::ref {
namespace {

/// Sum of c values `stride` apart, in double, rounded once.
float sum_of(const float* z, int64_t c, int64_t stride) {
  double sum = 0;
  for (int64_t i = 0; i < c; ++i)
    sum += z[i * stride];
  return static_cast<float>(sum);
}

void divide_rows(float* z, int64_t c, float eps) {
  for (int64_t i = 0; i < c; ++i) {
    const float divisor = sum_of(z + i * c, c, 1) + eps;
    for (int64_t j = 0; j < c; ++j)
      z[i * c + j] /= divisor;
  }
}

void divide_columns(float* z, int64_t c, float eps) {
  for (int64_t j = 0; j < c; ++j) {
    const float divisor = sum_of(z + j, c, c) + eps;
    for (int64_t i = 0; i < c; ++i)
      z[i * c + j] /= divisor;
  }
}

}  // namespace

void sinkhorn(float* z, int64_t c, int iters, float eps) {
  if (iters == 0) return;
  for (int64_t i = 0; i < c; ++i) {
    float* row = z + i * c;
    const float top = *std::max_element(row, row + c);
    for (int64_t j = 0; j < c; ++j)
      row[j] = exp_f32(row[j] - top);
    const float sum = sum_of(row, c, 1);
    for (int64_t j = 0; j < c; ++j)
      row[j] = row[j] / sum + eps;
  }
  divide_columns(z, c, eps);
  for (int pass = 1; pass < iters; ++pass) {
    divide_rows(z, c, eps);
    divide_columns(z, c, eps);
  }
}

void mhc_mix_row(const MhcMix& op, int64_t row, float factor) {
  const int64_t c = op.h.dim(1);
  float* m = op.mixes.row(row);
  for (int64_t i = 0; i < op.mixes.dim(1); ++i)
    m[i] *= factor;
  for (int64_t i = 0; i < c; ++i) {
    op.pre(row, i) = sigmoid_f32(m[i] * op.scale(0) + op.base(i)) + op.hc_eps;
    op.post(row, i) = 2.0f * sigmoid_f32(m[c + i] * op.scale(1) + op.base(c + i));
  }
  float* z = op.comb.row(row);
  for (int64_t i = 0; i < c * c; ++i)
    z[i] = m[2 * c + i] * op.scale(2) + op.base(2 * c + i);
  sinkhorn(z, c, op.sinkhorn_iters, op.hc_eps);
}

void mhc_mix(const MhcMix& op, RowRange range) {
  const View<const bf16, 2> flat(op.h.data, op.h.dim(0), op.h.stride());
  linear({.y = {}, .y_f32 = op.mixes, .x = flat, .w = op.fn}, range);
  for (int64_t row = range.begin; row < range.end; ++row)
    mhc_mix_row(op, row, inverse_rms(op.h.row(row), op.h.stride(), op.norm_eps));
}

void mhc_site(const MhcSite& op, RowRange range) {
  mhc_mix(op.mix, range);
  mhc_collapse({.x = op.x, .h = op.mix.h, .a = op.a}, range);
  rms_norm(
      {.y = op.x,
       .x = op.x,
       .weight = op.norm,
       .eps = op.mix.norm_eps,
       .codes = op.codes,
       .scales = op.scales},
      range
  );
}

void mhc_collapse(const MhcCollapse& op, RowRange range) {
  for (int64_t row = range.begin; row < range.end; ++row) {
    for (int64_t d = 0; d < op.x.dim(1); ++d) {
      double sum = 0;
      for (int64_t c = 0; c < op.h.dim(1); ++c)
        sum += op.a(row, c) * to_float(op.h(row, c, d));
      op.x(row, d) = to_bf16(static_cast<float>(sum));
    }
  }
}

void mhc_expand(const MhcExpand& op, RowRange range) {
  const int64_t c = op.h.dim(1);
  std::vector<float> comb(static_cast<std::size_t>(c * c));
  for (int64_t row = range.begin; row < range.end; ++row) {
    std::copy_n(op.comb.row(row), c * c, comb.begin());
    sinkhorn(comb.data(), c, op.sinkhorn_iters, op.hc_eps);
    for (int64_t j = 0; j < c; ++j) {
      for (int64_t d = 0; d < op.y.dim(1); ++d) {
        double mixed = 0;
        for (int64_t i = 0; i < c; ++i)
          mixed += comb[static_cast<std::size_t>(i * c + j)] * to_float(op.h(row, i, d));
        const float written = op.post(row, j) * to_float(op.y(row, d));
        op.h_out(row, j, d) = to_bf16(written + static_cast<float>(mixed));
      }
    }
  }
}

}  // namespace di::ops::ref
