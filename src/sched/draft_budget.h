// How many drafts to verify: expected tokens a second, from calibrated confidences and what a step
// of so many rows costs. Pure functions; a sequence verifies its first drafts, so a choice is one
// number a sequence.
//
// A choice keeps the law of a text (sampling/verification.h) only if whether draft j is verified
// does not depend on draft j or those behind it. Confidence j is computed from the drafts before j,
// so a choice may look at a sequence's confidences up to j, and at those of others. docs/drafts.md
// says which of these functions may look at what.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace di::sched {

/// a_j = c_0 · … · c_j with c_i = σ(confidence_i / temperature_i): the probability that draft j and
/// all before it are accepted. Temperatures are the calibrator's; none: 1.
std::vector<double> survivals(
    std::span<const float> confidence, std::span<const double> temperatures
);

/// One sequence's survivals; never rising.
using Survivals = std::vector<double>;

/// Seconds of a step by its rows: what was measured for a few counts, joined by lines. Never
/// falling: a measurement below that of fewer rows is taken for noise.
class RowCosts {
 public:
  /// A measured step.
  struct Point {
    int64_t rows = 0;
    double seconds = 0;
  };

  /// `points` has at least one, in ascending order of rows, with seconds above 0.
  explicit RowCosts(std::span<const Point> points);

  /// Below the first point its seconds; beyond the last one along the last line.
  double seconds(int64_t rows) const;

 private:
  std::vector<Point> points_;
};

/// What a step holds besides the drafts in question.
struct StepLoad {
  int64_t rows = 0;          ///< one for each sequence that decodes, and prefill rows
  double fixed_seconds = 0;  ///< beside the rows: drafting, sampling
};

/// Drafts to verify for each sequence when this step's confidences are known before it is sized:
/// the best drafts join one after another, and the first one that does not raise the expected
/// tokens a second ends it. Looks at nothing it should not know.
/// Source: the DSpark report, algorithm 1.
std::vector<int64_t> drafts_by_early_stop(
    std::span<const Survivals> sequences, const RowCosts& costs, const StepLoad& load
);

/// How many drafts a step verifies in all, when it is sized before its confidences are known: the
/// number that promises most tokens a second by the survivals of an earlier step. Costs may have
/// steps and plateaus. It must not be given the survivals of the drafts that it decides on, unless
/// all of them are verified by exact seed.
int64_t draft_budget(
    std::span<const Survivals> earlier, const RowCosts& costs, const StepLoad& load
);

/// A budget dealt out by this step's survivals, best first. Looks at nothing it should not know.
std::vector<int64_t> deal_drafts(std::span<const Survivals> sequences, int64_t budget);

/// Tokens that a step is expected to yield: one a sequence and the survivals of what is verified.
double expected_tokens(std::span<const Survivals> sequences, std::span<const int64_t> verified);

}  // namespace di::sched
