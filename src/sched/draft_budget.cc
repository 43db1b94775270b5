#include "sched/draft_budget.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace di::sched {
namespace {

constexpr double kMostExtreme = 60;  // of a confidence before σ

/// A draft that may be verified.
struct Candidate {
  double survival;
  int64_t index;  // in its sequence
  std::size_t sequence;
};

/// All drafts, best first. Equal ones: a sequence's own in order, then lower sequences first.
std::vector<Candidate> best_first(std::span<const Survivals> sequences) {
  std::vector<Candidate> all;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (std::size_t j = 0; j < sequences[s].size(); ++j)
      all.push_back({sequences[s][j], static_cast<int64_t>(j), s});
  }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.survival != b.survival ? a.survival > b.survival : a.index < b.index;
  });
  return all;
}

/// Tokens a second of a step that verifies `drafts` and yields `tokens`.
double rate(const RowCosts& costs, const StepLoad& load, int64_t drafts, double tokens) {
  return tokens / (load.fixed_seconds + costs.seconds(load.rows + drafts));
}

}  // namespace

std::vector<double> survivals(
    std::span<const float> confidence, std::span<const double> temperatures
) {
  std::vector<double> all;
  double survival = 1;
  for (std::size_t i = 0; i < confidence.size(); ++i) {
    const double temperature = temperatures.empty() ? 1 : temperatures[i];
    const double x = std::clamp(confidence[i] / temperature, -kMostExtreme, kMostExtreme);
    survival /= 1 + std::exp(-x);
    all.push_back(survival);
  }
  return all;
}

RowCosts::RowCosts(std::span<const Point> points) : points_(points.begin(), points.end()) {
  DI_CHECK(!points_.empty(), "a cost needs a measurement");
  for (std::size_t i = 1; i < points_.size(); ++i)
    points_[i].seconds = std::max(points_[i].seconds, points_[i - 1].seconds);
}

double RowCosts::seconds(int64_t rows) const {
  if (rows <= points_.front().rows || points_.size() == 1) return points_.front().seconds;
  const auto above = std::find_if(points_.begin() + 1, points_.end() - 1, [rows](const Point& p) {
    return p.rows >= rows;
  });
  const Point& b = *above;
  const Point& a = *(above - 1);
  const double share = static_cast<double>(rows - a.rows) / static_cast<double>(b.rows - a.rows);
  return a.seconds + share * (b.seconds - a.seconds);
}

std::vector<int64_t> drafts_by_early_stop(
    std::span<const Survivals> sequences, const RowCosts& costs, const StepLoad& load
) {
  std::vector<int64_t> verified(sequences.size(), 0);
  auto tokens = static_cast<double>(sequences.size());
  double best = rate(costs, load, 0, tokens);
  int64_t drafts = 0;
  for (const Candidate& candidate : best_first(sequences)) {
    tokens += candidate.survival;
    const double found = rate(costs, load, ++drafts, tokens);
    if (found <= best) break;
    best = found;
    ++verified[candidate.sequence];
  }
  return verified;
}

int64_t draft_budget(
    std::span<const Survivals> earlier, const RowCosts& costs, const StepLoad& load
) {
  auto tokens = static_cast<double>(earlier.size());
  double best = rate(costs, load, 0, tokens);
  int64_t budget = 0, drafts = 0;
  for (const Candidate& candidate : best_first(earlier)) {
    tokens += candidate.survival;
    const double found = rate(costs, load, ++drafts, tokens);
    if (found <= best) continue;
    best = found;
    budget = drafts;
  }
  return budget;
}

std::vector<int64_t> deal_drafts(std::span<const Survivals> sequences, int64_t budget) {
  std::vector<int64_t> verified(sequences.size(), 0);
  for (const Candidate& candidate : best_first(sequences)) {
    if (budget-- <= 0) break;
    ++verified[candidate.sequence];
  }
  return verified;
}

double expected_tokens(std::span<const Survivals> sequences, std::span<const int64_t> verified) {
  double tokens = 0;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    tokens += 1;
    for (int64_t j = 0; j < verified[s]; ++j)
      tokens += sequences[s][static_cast<std::size_t>(j)];
  }
  return tokens;
}

}  // namespace di::sched
