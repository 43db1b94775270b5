// Shorthands over the op table: one call, memory included.
#include "model/activations.h"

namespace di::model {

ops::Q8View quantize(const Pass& pass, const View<const bf16, 2>& x) {
  const auto codes = pass.arena().array<uint8_t>(x.dim(0), x.dim(1));
  const auto scales = pass.arena().array<uint8_t>(x.dim(0), x.dim(1) / ops::kScaleGroup);
  pass.ops.quantize_fp8(pass.exec, {.codes = codes, .scales = scales, .x = x});
  return {codes, scales};
}

View<bf16, 2> linear_q8(const Pass& pass, const ops::Q8View& x, const ops::Weight& w) {
  const auto y = pass.arena().array<bf16>(x.codes.dim(0), w.rows);
  linear_q8(pass, y, x, w);
  return y;
}

void linear_q8(
    const Pass& pass, const View<bf16, 2>& y, const ops::Q8View& x, const ops::Weight& w
) {
  pass.ops.linear_q8(pass.exec, {.y = y, .x = x, .w = w});
}

View<bf16, 2> linear_bf16(const Pass& pass, const View<const bf16, 2>& x, const ops::Weight& w) {
  const auto y = pass.arena().array<bf16>(x.dim(0), w.rows);
  pass.ops.linear(pass.exec, {.y = y, .y_f32 = {}, .x = x, .w = w});
  return y;
}

ops::Q8View linear_to_q8(
    const Pass& pass, const View<const bf16, 2>& x, const ops::Weight& w, int64_t groups
) {
  const auto codes = pass.arena().array<uint8_t>(x.dim(0), w.rows);
  const auto scales = pass.arena().array<uint8_t>(x.dim(0), w.rows / ops::kScaleGroup);
  pass.ops.linear(
      pass.exec,
      {.y = pass.arena().array<bf16>(x.dim(0), w.rows),
       .y_f32 = {},
       .x = x,
       .w = w,
       .groups = groups,
       .codes = codes,
       .scales = scales}
  );
  return {codes, scales};
}

View<float, 2> linear_f32(const Pass& pass, const View<const bf16, 2>& x, const ops::Weight& w) {
  const auto y = pass.arena().array<float>(x.dim(0), w.rows);
  pass.ops.linear(pass.exec, {.y = {}, .y_f32 = y, .x = x, .w = w});
  return y;
}

void norm(const Pass& pass, const View<bf16, 2>& x, const View<const bf16, 1>& weight) {
  const auto eps = static_cast<float>(pass.model.config.rms_norm_eps);
  pass.ops.rms_norm(pass.exec, {.y = x, .x = x, .weight = weight, .eps = eps});
}

ops::Q8View norm_q8(const Pass& pass, const View<bf16, 2>& x, const View<const bf16, 1>& weight) {
  const auto codes = pass.arena().array<uint8_t>(x.dim(0), x.dim(1));
  const auto scales = pass.arena().array<uint8_t>(x.dim(0), x.dim(1) / ops::kScaleGroup);
  const auto eps = static_cast<float>(pass.model.config.rms_norm_eps);
  pass.ops.rms_norm(
      pass.exec, {.y = x, .x = x, .weight = weight, .eps = eps, .codes = codes, .scales = scales}
  );
  return {codes, scales};
}

void rotate(
    const Pass& pass,
    int64_t l,
    const View<bf16, 3>& x,
    const View<const int64_t, 1>& positions,
    bool inverse
) {
  pass.ops.rope(
      pass.exec,
      {.x = x, .positions = positions, .frequencies = pass.frequencies(l), .inverse = inverse}
  );
}

}  // namespace di::model
