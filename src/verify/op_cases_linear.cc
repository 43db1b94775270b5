// Cases of the linears, the gated activation and the routers.
#include "ops/canonical.h"
#include "verify/op_case.h"

namespace di::verify {
namespace {

using ops::WeightFormat;

constexpr float kSwigluLimit = 10;
constexpr float kRouteScale = 1.5f;

ops::Q8View quantize(OpCase& test, const View<bf16, 2>& x) {
  const auto codes = test.room<uint8_t>(x.dim(0), x.dim(1));
  const auto scales = test.room<uint8_t>(x.dim(0), x.dim(1) / ops::kScaleGroup);
  test.ops().quantize_fp8(test.exec(), {.codes = codes, .scales = scales, .x = x});
  return {codes, scales};
}

View<bf16, 2> linear_q8(OpCase& test, const ops::Q8View& x, const ops::Weight& w) {
  const auto y = test.room<bf16>(x.codes.dim(0), w.rows);
  test.ops().linear_q8(test.exec(), {.y = y, .x = x, .w = w});
  return y;
}

View<bf16, 2> linear_bf16(
    OpCase& test, const View<bf16, 2>& x, const ops::Weight& w, int64_t groups = 1
) {
  const auto y = test.room<bf16>(x.dim(0), w.rows);
  test.ops().linear(test.exec(), {.y = y, .y_f32 = {}, .x = x, .w = w, .groups = groups});
  return y;
}

View<float, 2> linear_f32(OpCase& test, const View<bf16, 2>& x, const ops::Weight& w) {
  const auto y = test.room<float>(x.dim(0), w.rows);
  test.ops().linear(test.exec(), {.y = {}, .y_f32 = y, .x = x, .w = w});
  return y;
}

/// The fp32 logits of a router case.
View<float, 2> router_logits(OpCase& test) {
  const auto x = test.place(test.fixture().bf16s("x"), test.dim("x", 0), test.dim("x", 1));
  return linear_f32(test, x, test.weight(WeightFormat::kBf16, "weight"));
}

/// Routes the rows of a router case, whose ids and weights it checks.
void check_route(OpCase& test, ops::Route route) {
  const int64_t rows = test.dim("ids", 0), k = test.dim("ids", 1);
  const auto ids = test.room<int32_t>(rows, k);
  const auto weights = test.room<float>(rows, k);
  route.ids = ids;
  route.weights = weights;
  route.route_scale = kRouteScale;
  test.ops().route(test.exec(), route);
  test.check("ids", ids);
  test.check("weights", weights);
}

}  // namespace

void run_linear_case(OpCase& test) {
  const int64_t rows = test.dim("x", 0), cols = test.dim("x", 1);
  const auto x = test.place(test.fixture().bf16s("x"), rows, cols);
  const ops::Q8View quantized = quantize(test, x);
  test.check("x_codes", quantized.codes);
  test.check("x_scales", quantized.scales);
  test.check(
      "y_fp8", linear_q8(test, quantized, test.weight(WeightFormat::kFp8, "w_fp8", "w_fp8_scale"))
  );
  test.check(
      "y_fp4", linear_q8(test, quantized, test.weight(WeightFormat::kFp4, "w_fp4", "w_fp4_scale"))
  );
  const ops::Weight w_bf16 = test.weight(WeightFormat::kBf16, "w_bf16");
  test.check("y_bf16", linear_bf16(test, x, w_bf16));
  test.check("y_f32", linear_f32(test, x, w_bf16));

  const int64_t groups = test.dim("grouped_x", 1);
  const auto grouped = test.place(
      test.fixture().bf16s("grouped_x"), test.dim("grouped_x", 0), groups * test.dim("grouped_x", 2)
  );
  const ops::Weight grouped_w = test.weight(WeightFormat::kFp8, "grouped_w", "grouped_w_scale");
  test.check("y_grouped", linear_bf16(test, grouped, grouped_w, groups));
  test.note("sums before their rounding to bf16 (y_*_acc) are no result of an operator");
}

void run_swiglu_case(OpCase& test) {
  const Fixture& file = test.fixture();
  const int64_t rows = test.dim("gate", 0), inner = test.dim("gate", 1);
  const auto gate = test.place(file.bf16s("gate"), rows, inner);
  const auto up = test.place(file.bf16s("up"), rows, inner);
  const auto weights = test.place(file.floats("weight"));
  for (const bool routed : {false, true}) {
    const auto u = test.room<bf16>(rows, inner);
    test.ops().swiglu(
        test.exec(),
        {.u = u,
         .gate = gate,
         .up = up,
         .weights = routed ? weights : View<float, 1>{},
         .limit = kSwigluLimit}
    );
    test.check(routed ? "routed" : "shared", u);
  }
}

void run_router_case(OpCase& test) {
  const Fixture& file = test.fixture();
  const auto logits = router_logits(test);
  std::vector<float> scores;
  for (const float logit : test.fetch(logits))
    scores.push_back(ops::sqrt_softplus_f32(logit));
  test.check("scores", scores);
  ops::Route route;
  route.logits = logits;
  route.bias = test.place(file.floats("bias"));
  route.bias_vl = test.place(file.floats("bias_vl"));
  route.is_image = test.place(file.bytes("image_mask"));
  check_route(test, route);
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
  ops::Route route;
  route.logits = router_logits(test);
  route.fixed_ids = test.place(fixed_ids, rows, k);
  check_route(test, route);
}

}  // namespace di::verify
