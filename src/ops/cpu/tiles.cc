#include "ops/cpu/tiles.h"

#include <algorithm>

#include "base/check.h"

namespace di::ops::cpu {

Q8Path q8_path(const Kernels& kernels, WeightFormat format, int64_t rows) {
  if (format == WeightFormat::kFp4) return {kernels.q8_fp4, kernels};
  DI_CHECK(format == WeightFormat::kFp8, "quantised activations meet FP4 or FP8 weights");
  return {rows < kernels.fp8_many_rows ? kernels.q8_fp8_few : kernels.q8_fp8_many, kernels};
}

TileKernel linear_kernel(const Kernels& kernels, WeightFormat format) {
  switch (format) {
    case WeightFormat::kBf16: return kernels.linear_bf16;
    case WeightFormat::kF32: return kernels.linear_f32;
    case WeightFormat::kFp8: return kernels.linear_fp8;
    case WeightFormat::kFp4: break;
  }
  DI_CHECK(false, "bf16 activations do not meet FP4 weights");
  return nullptr;
}

int64_t grain_for(int64_t count, int num_threads) {
  return std::clamp<int64_t>(count / (num_threads * 8), 1, 8);
}

}  // namespace di::ops::cpu
