#include "ops/cuda/canonical_linear.h"
#include "ops/cuda/canonical_mhc.h"
#include "ops/cuda/canonical_rows.h"
#include "ops/cuda/canonical_sum.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/mhc.h"
#include "ops/cuda/mhc_rows.cuh"
#include "ops/cuda/shapes.h"

namespace di::ops::cuda::canonical {
namespace {

/// A warp for a row whose projection lies in op.mixes.
__global__ void __launch_bounds__(32)
    finish_mixes(MixArgs op, const bf16* h, int64_t width, float norm_eps) {
  __shared__ float m[kMixes];
  const int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  const double squares = sum_of_squares(h + row * width, width);
  const float factor = inverse_rms_of_sum(squares, width, norm_eps);
  if (lane < kMixes) m[lane] = op.mixes[row * kMixes + lane] * factor;
  __syncwarp();
  finish_gates(op, m, lane < 16 ? row : -1);
  finish_comb(op, m, lane < 16 ? row : -1);
}

}  // namespace

void mhc_mix(Exec& exec, const MhcMix& op) {
  need_equal("mhc_mix: streams", op.h.dim(1), kStreams);
  if (op.h.empty()) return;
  const int64_t rows = op.h.dim(0);
  const View<const bf16, 2> flat(op.h.data, rows, op.h.stride());
  linear(exec, {.y = {}, .y_f32 = op.mixes, .x = flat, .w = op.fn});
  finish_mixes<<<static_cast<unsigned>(rows), 32, 0, exec.stream>>>(
      mix_args_of(op), op.h.data, op.h.stride(), op.norm_eps
  );
  check_launch("mhc_mix");
}

void mhc_site(Exec& exec, const MhcSite& op) {
  mhc_mix(exec, op.mix);
  mhc_collapse(exec, {.x = op.x, .h = op.mix.h, .a = op.a});
  rms_norm(
      exec,
      {.y = op.x,
       .x = op.x,
       .weight = op.norm,
       .eps = op.mix.norm_eps,
       .codes = op.codes,
       .scales = op.scales}
  );
}

}  // namespace di::ops::cuda::canonical
