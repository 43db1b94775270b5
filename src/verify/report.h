// What verification found, case by case.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace di::verify {

/// One tensor beside its tolerance.
struct TensorCheck {
  std::string name;
  double rel_l2 = 0;      ///< ‖ours − expected‖ / ‖expected‖ over the whole tensor
  double worst_row = 0;   ///< the same for the worst row
  double unequal = 0;     ///< share of elements that differ at all
  double max_rel_l2 = 0;  ///< tolerances of the three
  double max_worst_row = 0;
  double max_unequal = 0;
  std::string problem;  ///< a mismatch of shape or kind; empty otherwise

  bool passed() const {
    return problem.empty() && rel_l2 <= max_rel_l2 && worst_row <= max_worst_row &&
           unequal <= max_unequal;
  }
};

enum class Outcome { kPassed, kFailed, kSkipped };

/// One case: a whole-model run, an operator file, or a file of text cases.
struct CaseReport {
  std::string name;
  Outcome outcome = Outcome::kPassed;
  std::string note;  ///< why it was skipped or failed, or what was not covered
  std::vector<TensorCheck> tensors;
  int64_t count = 1;  ///< cases that this entry stands for

  /// Appends a check and fails the case when the check failed.
  void add(TensorCheck check) {
    if (!check.passed()) outcome = Outcome::kFailed;
    tensors.push_back(std::move(check));
  }
  void fail(std::string why) {
    outcome = Outcome::kFailed;
    note = std::move(why);
  }
};

}  // namespace di::verify
