#include "checkpoint/memory_report.h"

namespace di::checkpoint {

std::vector<KindTotal> totals_by_kind(const std::vector<ExpectedTensor>& tensors) {
  std::vector<KindTotal> totals;
  for (const TensorKind kind :
       {TensorKind::kEmbedding,
        TensorKind::kDense,
        TensorKind::kExperts,
        TensorKind::kEngram,
        TensorKind::kDraft,
        TensorKind::kVision}) {
    totals.push_back({kind});
  }
  for (const ExpectedTensor& tensor : tensors) {
    KindTotal& total = totals[static_cast<std::size_t>(tensor.kind)];
    total.tensors += 1;
    total.bytes += tensor.bytes();
  }
  return totals;
}

}  // namespace di::checkpoint
