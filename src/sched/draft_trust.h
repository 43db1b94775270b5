// DraftTrust: how far confidences are to be believed, by what became of earlier drafts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sched/draft_budget.h"

namespace di::sched {

/// Drafts of recent steps: how many were expected to be accepted, and how many were. Confidences
/// that are right for most texts can be far too high for one, which is soon seen.
class DraftTrust {
 public:
  /// `keep`: of what is known, from step to step.
  explicit DraftTrust(double keep) : keep_(keep) {}

  /// A step in which `expected` drafts, the sum of their survivals, and `accepted` of them stayed.
  void observe(double expected, int64_t accepted) {
    expected_ = keep_ * expected_ + expected;
    accepted_ = keep_ * accepted_ + static_cast<double>(accepted);
  }

  /// What survivals are to be multiplied by: accepted over expected drafts, as if `evidence` more
  /// had been expected, of which the share `usual` was accepted. Within bounds.
  double factor(double usual, double evidence) const {
    const double ratio = (accepted_ + usual * evidence) / (expected_ + evidence);
    return std::clamp(ratio, kLeast, kMost);
  }

 private:
  static constexpr double kLeast = 0.1;
  static constexpr double kMost = 2;

  double keep_;
  double expected_ = 0;
  double accepted_ = 0;
};

/// Survivals that are believed as far as `trust`, a DraftTrust::factor(), says.
inline Survivals believed(Survivals survivals, double trust) {
  for (double& survival : survivals)
    survival = std::min(1.0, survival * trust);
  return survivals;
}

}  // namespace di::sched
