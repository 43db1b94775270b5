#include "engine/expert_counter.h"

#include <algorithm>
#include <numeric>

namespace di::engine {

void ExpertCounter::observe(
    std::string_view name, int64_t /*layer*/, const model::ObservedTensor& tensor
) {
  if (name != "expert_ids" || counts_.empty()) return;
  std::fill(counts_.begin(), counts_.end(), 0);
  const int64_t count = tensor.shape[0] * tensor.shape[1];
  const auto* ids = static_cast<const int32_t*>(tensor.data);
  for (int64_t i = 0; i < count; ++i)
    ++counts_[static_cast<std::size_t>(ids[i])];
  max_ += static_cast<double>(*std::max_element(counts_.begin(), counts_.end()));
  mean_ += static_cast<double>(count) / static_cast<double>(counts_.size());
  used_ += static_cast<double>(std::ssize(counts_) - std::count(counts_.begin(), counts_.end(), 0));
  ++layers_;
}

}  // namespace di::engine
