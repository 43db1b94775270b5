// The router, the gated activation, and the experts of a row in ascending order.
#include <limits>
#include <vector>

#include "ops/canonical.h"
#include "ops/ref/ref.h"

namespace di::ops::ref {
namespace {

/// The `k` ids with the largest value, ties to the lower id, in ascending order.
void top_ids(const std::vector<float>& value, int64_t k, int32_t* ids) {
  std::vector<int32_t> order(value.size());
  for (std::size_t e = 0; e < order.size(); ++e)
    order[e] = static_cast<int32_t>(e);
  std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int32_t a, int32_t b) {
    const float va = value[static_cast<std::size_t>(a)];
    const float vb = value[static_cast<std::size_t>(b)];
    return va != vb ? va > vb : a < b;
  });
  std::sort(order.begin(), order.begin() + k);
  std::copy_n(order.begin(), k, ids);
}

/// One expert over one quantised row; `weight` is nullptr for the shared expert.
std::vector<bf16> run_expert(
    const ExpertWeights& expert, const Q8View& x, const float* weight, float limit
) {
  const int64_t inner = expert.w1.rows;
  std::vector<bf16> gate(static_cast<std::size_t>(inner)), up(gate.size()), u(gate.size());
  std::vector<uint8_t> codes(gate.size()), scales(gate.size() / kScaleGroup);
  std::vector<bf16> y(static_cast<std::size_t>(expert.w2.rows));
  linear_q8({View<bf16, 2>(gate.data(), 1, inner), x, expert.w1}, {0, 1});
  linear_q8({View<bf16, 2>(up.data(), 1, inner), x, expert.w3}, {0, 1});
  swiglu(
      {.u = View<bf16, 2>(u.data(), 1, inner),
       .gate = View<bf16, 2>(gate.data(), 1, inner),
       .up = View<bf16, 2>(up.data(), 1, inner),
       .weights = View<const float, 1>(weight, weight == nullptr ? 0 : 1),
       .limit = limit},
      {0, 1}
  );
  const View<uint8_t, 2> code_view(codes.data(), 1, inner);
  const View<uint8_t, 2> scale_view(scales.data(), 1, inner / kScaleGroup);
  quantize_fp8({code_view, scale_view, View<const bf16, 2>(u.data(), 1, inner)}, {0, 1});
  linear_q8(
      {View<bf16, 2>(y.data(), 1, expert.w2.rows), {code_view, scale_view}, expert.w2}, {0, 1}
  );
  return y;
}

}  // namespace

void route(const Route& op, RowRange range) {
  const auto experts = static_cast<std::size_t>(op.logits.dim(1));
  const int64_t k = op.ids.dim(1);
  std::vector<float> score(experts);
  std::vector<float> biased(experts);
  for (int64_t row = range.begin; row < range.end; ++row) {
    const bool is_image = !op.is_image.empty() && op.is_image(row) != 0;
    const View<const float, 1>& bias = is_image ? op.bias_vl : op.bias;
    for (std::size_t e = 0; e < experts; ++e) {
      score[e] = sqrt_softplus_f32(op.logits.row(row)[e]);
      biased[e] = bias.empty() ? score[e] : score[e] + bias.data[e];
    }
    if (op.fixed_ids.empty()) {
      top_ids(biased, k, op.ids.row(row));
    } else {
      std::copy_n(op.fixed_ids.row(row), k, op.ids.row(row));
    }
    double total = 0;
    for (int64_t i = 0; i < k; ++i)
      total += score[static_cast<std::size_t>(op.ids(row, i))];
    const float divisor = static_cast<float>(total) + 1e-20f;
    for (int64_t i = 0; i < k; ++i) {
      op.weights(row, i) =
          score[static_cast<std::size_t>(op.ids(row, i))] / divisor * op.route_scale;
    }
  }
}

void swiglu(const SwiGlu& op, RowRange range) {
  for (int64_t row = range.begin; row < range.end; ++row) {
    for (int64_t i = 0; i < op.u.dim(1); ++i) {
      const float gate = std::min(to_float(op.gate(row, i)), op.limit);
      const float up = std::clamp(to_float(op.up(row, i)), -op.limit, op.limit);
      float u = silu_f32(gate) * up;
      if (!op.weights.empty()) u = op.weights(row) * u;
      op.u(row, i) = to_bf16(u);
    }
  }
}

void experts(const Experts& op, RowRange range) {
  const auto hidden = static_cast<std::size_t>(op.y.dim(1));
  std::vector<float> sum(hidden);
  const auto add = [&](const std::vector<bf16>& y) {
    for (std::size_t d = 0; d < hidden; ++d)
      sum[d] += to_float(y[d]);
  };
  for (int64_t row = range.begin; row < range.end; ++row) {
    const Q8View x{
        View<const uint8_t, 2>(op.x.codes.row(row), 1, op.x.codes.dim(1)),
        View<const uint8_t, 2>(op.x.scales.row(row), 1, op.x.scales.dim(1))};
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (int64_t i = 0; i < op.ids.dim(1); ++i) {
      const auto id = static_cast<std::size_t>(op.ids(row, i));
      add(run_expert(op.experts[id], x, &op.weights(row, i), op.swiglu_limit));
    }
    add(run_expert(op.shared, x, nullptr, op.swiglu_limit));
    for (std::size_t d = 0; d < hidden; ++d)
      op.y.row(row)[d] = to_bf16(sum[d]);
  }
}

}  // namespace di::ops::ref
