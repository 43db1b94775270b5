#include "ops/cpu/activations.h"

#include <algorithm>

#include "base/math.h"
#include "ops/weight.h"

namespace di::ops::cpu {

int64_t q8_row_bytes(Q8Form form, int64_t cols) {
  const int64_t blocks = cols / kScaleGroup;
  switch (form) {
    case Q8Form::kDigits: return blocks * static_cast<int64_t>(sizeof(DigitBlock));
    case Q8Form::kWords: return blocks * static_cast<int64_t>(sizeof(WordBlock));
    case Q8Form::kDoubles: return blocks * static_cast<int64_t>(sizeof(DoubleBlock));
  }
  return 0;
}

int64_t double_row_bytes(int64_t cols) {
  return align_up(cols, kScaleGroup) * static_cast<int64_t>(sizeof(double));
}

void prepare_double(const bf16* x, int64_t cols, std::byte* out) {
  auto* values = reinterpret_cast<double*>(out);
  for (int64_t i = 0; i < cols; ++i)
    values[i] = static_cast<double>(to_float(x[i]));
  std::fill(values + cols, values + align_up(cols, kScaleGroup), 0.0);
}

}  // namespace di::ops::cpu
