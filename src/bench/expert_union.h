// ExpertUnion: how many distinct experts the rows of a pass choose.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>

#include "model/observer.h"

namespace di::bench {

/// Observes a pass and adds up the distinct experts of each layer's rows.
class ExpertUnion : public model::Observer {
 public:
  void observe(std::string_view name, int64_t, const model::ObservedTensor& tensor) override {
    if (name != "expert_ids") return;
    const auto* ids = static_cast<const int32_t*>(tensor.data);
    distinct_ += std::ssize(std::set<int32_t>(ids, ids + tensor.shape[0] * tensor.shape[1]));
  }

  /// Summed over layers.
  int64_t distinct() const { return distinct_; }

 private:
  int64_t distinct_ = 0;
};

}  // namespace di::bench
