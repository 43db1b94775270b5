#include "ops/cuda/expert_matrix.h"

#include <string>

#include "base/error.h"

namespace di::ops::cuda {

ExpertMatrix expert_matrix(
    const Experts& op, Weight ExpertWeights::*which, const char* name, int64_t rows, int64_t cols
) {
  const auto check_shape = [&](const Weight& w, WeightFormat format) {
    if (format != WeightFormat::kFp8 && format != WeightFormat::kFp4)
      throw Error(ErrorCode::kUnsupported, "experts: expected weights in FP4 or FP8, found others");
    if (w.rows == rows && w.cols == cols && w.format == format && w.scales == nullptr) return;
    throw Error(
        ErrorCode::kUnsupported,
        std::string("experts: ") + name + ": expected packed matrices of " + std::to_string(rows) +
            " x " + std::to_string(cols) + " in one format, found " + std::to_string(w.rows) +
            " x " + std::to_string(w.cols)
    );
  };
  const Weight& shared = op.shared.*which;
  check_shape(shared, op.shared.w1.format);
  ExpertMatrix matrix{nullptr, 0, reinterpret_cast<const uint8_t*>(shared.data)};
  if (op.experts.empty()) return matrix;
  const Weight& first = op.experts.front().*which;
  const Weight& last = op.experts.back().*which;
  check_shape(first, op.experts.front().w1.format);
  check_shape(last, op.experts.front().w1.format);
  matrix.routed = reinterpret_cast<const uint8_t*>(first.data);
  const int64_t steps = std::ssize(op.experts) - 1;
  if (steps == 0) return matrix;
  matrix.stride = (op.experts[1].*which).data - first.data;
  if (first.data + steps * matrix.stride != last.data) {
    throw Error(
        ErrorCode::kUnsupported,
        std::string("experts: ") + name +
            ": expected the experts' matrices at a constant distance, found the last one elsewhere"
    );
  }
  return matrix;
}

}  // namespace di::ops::cuda
