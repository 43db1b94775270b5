#include "ops/cpu/tiles.h"

#include <algorithm>

#include "base/check.h"

namespace di::ops::cpu {

int64_t Q8Form::row_bytes(int64_t cols) const {
  return format == WeightFormat::kFp4 ? digit_row_bytes(cols) : wide_row_bytes(cols);
}

void Q8Form::prepare(const uint8_t* codes, const uint8_t* scales, int64_t cols, std::byte* out)
    const {
  if (format == WeightFormat::kFp4) {
    prepare_digits(codes, scales, cols, digit_bits, out);
  } else {
    prepare_wide(codes, scales, cols, out);
  }
}

Q8Form q8_form(const Kernels& kernels, WeightFormat format) {
  DI_CHECK(
      format == WeightFormat::kFp4 || format == WeightFormat::kFp8,
      "quantised activations meet FP4 or FP8 weights"
  );
  const TileKernel kernel = format == WeightFormat::kFp4 ? kernels.q8_fp4 : kernels.q8_fp8;
  return {kernel, format, kernels.digit_bits};
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
