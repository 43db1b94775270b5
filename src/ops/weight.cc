#include "ops/weight.h"

#include "base/math.h"

namespace di::ops {

int64_t data_bytes(WeightFormat format, int64_t rows, int64_t cols) {
  switch (format) {
    case WeightFormat::kFp8: return rows * cols;
    case WeightFormat::kFp4: return rows * cols / 2;
    case WeightFormat::kBf16: return rows * cols * 2;
    case WeightFormat::kF32: return rows * cols * 4;
  }
  return 0;
}

int64_t scale_bytes(WeightFormat format, int64_t rows, int64_t cols) {
  switch (format) {
    case WeightFormat::kFp8: return ceil_div(rows, kScaleGroup) * ceil_div(cols, kScaleGroup);
    case WeightFormat::kFp4: return rows * (cols / kScaleGroup);
    case WeightFormat::kBf16:
    case WeightFormat::kF32: return 0;
  }
  return 0;
}

}  // namespace di::ops
