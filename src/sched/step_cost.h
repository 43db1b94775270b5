// What a step costs, learnt while running: so that a prompt never holds up those who decode.
#pragma once

#include <array>
#include <cstdint>

namespace di::sched {

/// Least squares of seconds = a + b · decode rows + c · prefill rows over recent steps (older ones
/// fade with a half-life of about 90 steps). An outlier counts as four times what was expected.
class StepCost {
 public:
  /// A step took `seconds`; ignored when not above 0.
  void observe(int64_t decode_rows, int64_t prefill_rows, double seconds);

  /// Seconds expected of a step; 0 before anything was observed.
  double expected(int64_t decode_rows, int64_t prefill_rows) const;

  /// What a step of `seconds` is worth in prefill rows; 0 while that is not known.
  double in_prefill_rows(double seconds) const;

  /// How many prefill rows keep a step with `decode_rows` within `seconds`, at least
  /// `at_least`. Never more than twice the most seen in one step so far (or `at_least`): beyond,
  /// the line is not trusted, and it grows to what fits within a few steps.
  int64_t prefill_rows_within(double seconds, int64_t decode_rows, int64_t at_least) const;

 private:
  void solve();

  std::array<std::array<double, 3>, 3> squares_{};  // sums of x xᵀ, x = (1, decode, prefill)
  std::array<double, 3> products_{};                // sums of x · seconds
  std::array<double, 3> costs_{};                   // a, b, c: none below 0
  double weight_ = 0;
  int64_t most_prefill_rows_ = 0;
};

}  // namespace di::sched
