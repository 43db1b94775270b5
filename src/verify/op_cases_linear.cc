// Cases of the linears, the gated activation and the routers.
#include "ops/canonical.h"
#include "verify/op_case.h"

namespace di::verify {
namespace {

using ops::WeightFormat;

constexpr float kSwigluLimit = 10;
constexpr float kRouteScale = 1.5f;

/// Quantised rows, owned.
struct Quantized {
  Quantized(OpCase& test, const View<const bf16, 2>& x)
      : rows(x.dim(0)),
        cols(x.dim(1)),
        codes(static_cast<std::size_t>(x.size())),
        scales(codes.size() / ops::kScaleGroup) {
    test.ops().quantize_fp8(
        test.exec(),
        {.codes = View<uint8_t, 2>(codes.data(), rows, cols),
         .scales = View<uint8_t, 2>(scales.data(), rows, cols / ops::kScaleGroup),
         .x = x}
    );
  }
  ops::Q8View view() const {
    return {
        View<const uint8_t, 2>(codes.data(), rows, cols),
        View<const uint8_t, 2>(scales.data(), rows, cols / ops::kScaleGroup)};
  }

  int64_t rows, cols;
  std::vector<uint8_t> codes, scales;
};

std::vector<bf16> linear_q8(OpCase& test, const Quantized& x, const ops::Weight& w) {
  std::vector<bf16> y(static_cast<std::size_t>(x.rows * w.rows));
  test.ops().linear_q8(
      test.exec(), {.y = View<bf16, 2>(y.data(), x.rows, w.rows), .x = x.view(), .w = w}
  );
  return y;
}

std::vector<bf16> linear_bf16(
    OpCase& test, const View<const bf16, 2>& x, const ops::Weight& w, int64_t groups = 1
) {
  std::vector<bf16> y(static_cast<std::size_t>(x.dim(0) * w.rows));
  test.ops().linear(
      test.exec(),
      {.y = View<bf16, 2>(y.data(), x.dim(0), w.rows),
       .y_f32 = {},
       .x = x,
       .w = w,
       .groups = groups}
  );
  return y;
}

std::vector<float> linear_f32(OpCase& test, const View<const bf16, 2>& x, const ops::Weight& w) {
  std::vector<float> y(static_cast<std::size_t>(x.dim(0) * w.rows));
  test.ops().linear(
      test.exec(), {.y = {}, .y_f32 = View<float, 2>(y.data(), x.dim(0), w.rows), .x = x, .w = w}
  );
  return y;
}

/// The fp32 logits of a router case.
std::vector<float> router_logits(OpCase& test) {
  const std::vector<bf16> x = test.fixture().bf16s("x");
  const ops::Weight w = test.weight(WeightFormat::kBf16, "weight");
  return linear_f32(test, View<const bf16, 2>(x.data(), test.dim("x", 0), test.dim("x", 1)), w);
}

View<const float, 1> vector_view(const std::vector<float>& values) {
  return View<const float, 1>(values.data(), std::ssize(values));
}

}  // namespace

void run_linear_case(OpCase& test) {
  const int64_t rows = test.dim("x", 0), cols = test.dim("x", 1);
  const std::vector<bf16> x = test.fixture().bf16s("x");
  const View<const bf16, 2> x_view(x.data(), rows, cols);
  const Quantized quantized(test, x_view);
  test.check("x_codes", quantized.codes);
  test.check("x_scales", quantized.scales);
  test.check(
      "y_fp8", linear_q8(test, quantized, test.weight(WeightFormat::kFp8, "w_fp8", "w_fp8_scale"))
  );
  test.check(
      "y_fp4", linear_q8(test, quantized, test.weight(WeightFormat::kFp4, "w_fp4", "w_fp4_scale"))
  );
  const ops::Weight w_bf16 = test.weight(WeightFormat::kBf16, "w_bf16");
  test.check("y_bf16", linear_bf16(test, x_view, w_bf16));
  test.check("y_f32", linear_f32(test, x_view, w_bf16));

  const int64_t groups = test.dim("grouped_x", 1);
  const std::vector<bf16> grouped = test.fixture().bf16s("grouped_x");
  const View<const bf16, 2> grouped_view(
      grouped.data(), test.dim("grouped_x", 0), groups * test.dim("grouped_x", 2)
  );
  const ops::Weight grouped_w = test.weight(WeightFormat::kFp8, "grouped_w", "grouped_w_scale");
  test.check("y_grouped", linear_bf16(test, grouped_view, grouped_w, groups));
  test.note("sums before their rounding to bf16 (y_*_acc) are no result of an operator");
}

void run_swiglu_case(OpCase& test) {
  const Fixture& file = test.fixture();
  const int64_t rows = test.dim("gate", 0), inner = test.dim("gate", 1);
  const std::vector<bf16> gate = file.bf16s("gate"), up = file.bf16s("up");
  const std::vector<float> weights = file.floats("weight");
  for (const bool routed : {false, true}) {
    std::vector<bf16> u(gate.size());
    test.ops().swiglu(
        test.exec(),
        {.u = View<bf16, 2>(u.data(), rows, inner),
         .gate = View<const bf16, 2>(gate.data(), rows, inner),
         .up = View<const bf16, 2>(up.data(), rows, inner),
         .weights = routed ? vector_view(weights) : View<const float, 1>{},
         .limit = kSwigluLimit}
    );
    test.check(routed ? "routed" : "shared", u);
  }
}

void run_router_case(OpCase& test) {
  const Fixture& file = test.fixture();
  const int64_t rows = test.dim("ids", 0), k = test.dim("ids", 1);
  const int64_t experts = test.dim("weight", 0);
  const std::vector<float> logits = router_logits(test);
  std::vector<float> scores;
  for (const float logit : logits)
    scores.push_back(ops::sqrt_softplus_f32(logit));
  test.check("scores", scores);

  const std::vector<float> bias = file.floats("bias"), bias_vl = file.floats("bias_vl");
  const std::vector<uint8_t> is_image = file.bytes("image_mask");
  std::vector<int32_t> ids(static_cast<std::size_t>(rows * k));
  std::vector<float> weights(ids.size());
  test.ops().route(
      test.exec(),
      {.ids = View<int32_t, 2>(ids.data(), rows, k),
       .weights = View<float, 2>(weights.data(), rows, k),
       .logits = View<const float, 2>(logits.data(), rows, experts),
       .bias = vector_view(bias),
       .bias_vl = vector_view(bias_vl),
       .is_image = View<const uint8_t, 1>(is_image.data(), rows),
       .fixed_ids = {},
       .route_scale = kRouteScale}
  );
  test.check("ids", ids);
  test.check("weights", weights);
}

void run_router_hash_v4_case(OpCase& test) {
  const Fixture& file = test.fixture();
  const int64_t rows = test.dim("ids", 0), k = test.dim("ids", 1);
  const std::vector<int64_t> table = file.integers("tid2eid");
  std::vector<int32_t> fixed_ids;
  for (const int64_t token : file.integers("token_ids")) {
    for (int64_t i = 0; i < k; ++i)
      fixed_ids.push_back(static_cast<int32_t>(table.at(static_cast<std::size_t>(token * k + i))));
  }
  const std::vector<float> logits = router_logits(test);
  std::vector<int32_t> ids(fixed_ids.size());
  std::vector<float> weights(ids.size());
  test.ops().route(
      test.exec(),
      {.ids = View<int32_t, 2>(ids.data(), rows, k),
       .weights = View<float, 2>(weights.data(), rows, k),
       .logits = View<const float, 2>(logits.data(), rows, test.dim("weight", 0)),
       .bias = {},
       .bias_vl = {},
       .is_image = {},
       .fixed_ids = View<const int32_t, 2>(fixed_ids.data(), rows, k),
       .route_scale = kRouteScale}
  );
  test.check("ids", ids);
  test.check("weights", weights);
}

}  // namespace di::verify
