// Online least squares; see step_cost.h.
#include "sched/step_cost.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace di::sched {
namespace {

constexpr double kKeep = 127.0 / 128;
constexpr double kOutlier = 4;
constexpr double kSettled = 16;  // observations before one can be an outlier

using Matrix = std::array<std::array<double, 3>, 3>;
using Vector = std::array<double, 3>;

// Solves m x = v over the columns in `use`; m is symmetric and positive definite there.
Vector solve_for(Matrix m, Vector v, const std::array<bool, 3>& use) {
  for (std::size_t i = 0; i < 3; ++i) {
    if (use[i]) continue;
    for (std::size_t j = 0; j < 3; ++j)
      m[i][j] = m[j][i] = 0;
    m[i][i] = 1;
    v[i] = 0;
  }
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t row = i + 1; row < 3; ++row) {
      const double factor = m[row][i] / m[i][i];
      for (std::size_t column = i; column < 3; ++column)
        m[row][column] -= factor * m[i][column];
      v[row] -= factor * v[i];
    }
  }
  for (std::size_t i = 3; i-- > 0;) {
    for (std::size_t column = i + 1; column < 3; ++column)
      v[i] -= m[i][column] * v[column];
    v[i] /= m[i][i];
  }
  return v;
}

}  // namespace

void StepCost::observe(int64_t decode_rows, int64_t prefill_rows, double seconds) {
  if (!(seconds > 0)) return;
  most_prefill_rows_ = std::max(most_prefill_rows_, prefill_rows);
  const double before = expected(decode_rows, prefill_rows);
  if (weight_ > kSettled && before > 0) seconds = std::min(seconds, kOutlier * before);

  const Vector x{1, static_cast<double>(decode_rows), static_cast<double>(prefill_rows)};
  weight_ = weight_ * kKeep + 1;
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t j = 0; j < 3; ++j)
      squares_[i][j] = squares_[i][j] * kKeep + x[i] * x[j];
    products_[i] = products_[i] * kKeep + x[i] * seconds;
  }
  solve();
}

// A cost below 0 is one that the recent steps do not show: it is left out and the rest solved anew.
void StepCost::solve() {
  Matrix ridged = squares_;
  for (std::size_t i = 0; i < 3; ++i)
    ridged[i][i] += 1e-6 * squares_[i][i] + 1e-9;
  std::array<bool, 3> use{true, true, true};
  for (int round = 0; round < 3; ++round) {
    costs_ = solve_for(ridged, products_, use);
    const auto lowest = std::min_element(costs_.begin(), costs_.end());
    if (*lowest >= 0) break;
    use[static_cast<std::size_t>(lowest - costs_.begin())] = false;
  }
  for (double& cost : costs_)
    cost = std::max(cost, 0.0);
}

double StepCost::expected(int64_t decode_rows, int64_t prefill_rows) const {
  return costs_[0] + costs_[1] * static_cast<double>(decode_rows) +
         costs_[2] * static_cast<double>(prefill_rows);
}

double StepCost::in_prefill_rows(double seconds) const {
  return weight_ > kSettled && costs_[2] > 0 ? seconds / costs_[2] : 0;
}

int64_t StepCost::prefill_rows_within(double seconds, int64_t decode_rows, int64_t at_least) const {
  const int64_t trusted = std::max(at_least, 2 * most_prefill_rows_);
  const double left = seconds - expected(decode_rows, 0);
  if (left >= costs_[2] * static_cast<double>(trusted)) return trusted;
  return std::max(at_least, static_cast<int64_t>(left / costs_[2]));
}

}  // namespace di::sched
