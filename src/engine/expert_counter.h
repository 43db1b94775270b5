// ExpertCounter: how evenly a step's tokens fell on the experts.
#pragma once

#include <cstdint>
#include <vector>

#include "model/observer.h"

namespace di::engine {

/// Watches the expert ids of each layer of a pass.
class ExpertCounter final : public model::Observer {
 public:
  explicit ExpertCounter(int64_t num_experts) : counts_(static_cast<std::size_t>(num_experts)) {}

  void observe(std::string_view name, int64_t layer, const model::ObservedTensor& tensor) override;

  /// Forgets all passes.
  void reset() { max_ = mean_ = used_ = layers_ = 0; }

  /// Tokens of the busiest expert, summed over layers.
  double max() const { return max_; }
  /// Tokens of the mean expert, summed over layers.
  double mean() const { return mean_; }
  /// Experts that a layer's tokens fell on, mean over layers; 0 before any.
  double used() const { return layers_ > 0 ? used_ / layers_ : 0; }

 private:
  std::vector<int64_t> counts_;  // [experts], of one layer
  double max_ = 0;
  double mean_ = 0;
  double used_ = 0;  // summed over layers
  double layers_ = 0;
};

}  // namespace di::engine
