// What steps cost, measured: seconds by rows, context, experts and drafting. Starts from a profile
// or a table kept from an earlier run, or from nothing, and follows every step that runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sched/cost_fits.h"
#include "sched/draft_budget.h"

namespace di::sched {

/// What a step held.
struct StepShape {
  int64_t rows = 0;          ///< all rows of the backbone: newest tokens, drafts, prompt rows
  int64_t prefill_rows = 0;  ///< prompt rows among them
  int64_t key_pairs = 0;     ///< Σ over sequences of rows · tokens seen by the last row
  double experts = 0;        ///< distinct experts a layer, mean over layers; 0: unknown
  int64_t drafting = 0;      ///< sequences for which drafts were made after the draws

  /// Tokens that a row sees, mean; 0: unknown.
  double keys() const {
    return rows > 0 ? static_cast<double>(key_pairs) / static_cast<double>(rows) : 0;
  }
};

/// How long it took.
struct StepSeconds {
  double total = 0;     ///< from the first launch to the last draft; ≤ 0: not measured
  double drafting = 0;  ///< of these, for making drafts; 0: unknown, or none made
};

/// A step whose drafts are to be chosen.
struct StepForecast {
  int64_t rows = 1;         ///< without drafts
  int64_t drafts = 0;       ///< that may be verified, at most
  double keys_per_row = 0;  ///< tokens that a row sees, mean; 0: as usual
};

/// The costs of one step, to travel with its orders.
struct StepCosts {
  /// For drafts_by_early_stop(): seconds of the backbone, the head and draws by all rows, from the
  /// forecast's rows to those with all drafts; the greatest convex curve below `measured`. An early
  /// stop by it is not held up by a stair, by noise, or by first rows that cost more than others.
  RowCosts rows;
  /// For draft_budget(): what is expected, never falling.
  RowCosts measured;
  double drafting_base = 0;  ///< seconds of drafting for anybody
  double drafting_each = 0;  ///< and for each sequence

  /// Seconds of drafting for so many sequences; 0 for none.
  double drafting(int64_t sequences) const;

  /// The load of a step that has `num_rows` rows without drafts and makes drafts for `drafting`
  /// sequences, as the choices in draft_budget.h take it.
  StepLoad load(int64_t num_rows, int64_t drafting) const;
};

/// Everything that was learnt, in plain numbers: what a file keeps.
struct CostTable {
  /// Steps of one number of rows, averaged.
  struct Point {
    int64_t rows = 0;
    double seconds = 0;  ///< without drafting, at the context and experts below
    double weight = 0;   ///< how many steps' worth of evidence
    double keys = 0;     ///< usual ones of a row
    double experts = 0;  ///< usual ones; 0: unknown

    bool operator==(const Point&) const = default;
  };
  std::vector<Point> points = {};  ///< ascending in rows
  double rise_per_key = 0;         ///< share of a step by each key of a row more than usual
  double seconds_per_expert = 0;   ///< by distinct experts a layer more than usual
  double drafting_base = 0;
  double drafting_each = 0;
  double drafting_weight = 0;  ///< evidence of the two above; 0: none

  bool operator==(const CostTable&) const = default;

  /// True when points ascend and all numbers are such as steps can have: no other table may be
  /// given to DraftCosts.
  bool is_sound() const;
};

/// Learns costs. A step's seconds are modelled as
///   T(rows) · (1 + k · (keys − usual keys)) + e · (experts − usual experts) + drafting(sequences)
/// where T and what is usual are averages at about four points an octave of rows, all of which
/// follow a common level, too: a machine that slows down slows down everywhere. Keys are those that
/// a row sees: longer texts make all steps longer by a like share, whether a machine spends its
/// time on a row's keys or on waiting for them. Averages are exponential with about 32 steps at
/// most, an outlier counts as twice what was expected, T never falls with rows, and no cost is
/// below 0.
///
/// Thread: one at a time. Cost: observe() 1 us, costs_for() 2 us.
class DraftCosts {
 public:
  DraftCosts();
  /// Goes on from a sound table, with little weight: steps soon overrule it.
  explicit DraftCosts(const CostTable& table);

  /// A step took so long. Ignored without rows or seconds.
  void observe(const StepShape& shape, const StepSeconds& seconds);

  /// A shape of the profile took so long, several times: their medians, with the weight of all.
  void observe_profile(const StepShape& shape, std::span<const StepSeconds> repeats);

  /// True before anything was observed.
  bool is_empty() const;

  /// The costs of a step with experts as distinct as in recent ones. A number of rows of which
  /// little is known costs no more than those around it let expect: so it is tried. An empty table
  /// expects the same of any rows.
  std::shared_ptr<const StepCosts> costs_for(const StepForecast& forecast) const;

  /// Seconds expected of a step; 0 while empty.
  double expected(const StepShape& shape) const;

  /// Seconds expected of drafting for so many sequences; 0 for none.
  double drafting(int64_t sequences) const;

  /// The seconds of a step, an outlier as twice what was expected; where little is known of so many
  /// rows, as four times, and where nothing is known, as it is.
  double plausible(const StepShape& shape, double seconds) const;

  /// Recent mean of |seconds − expected| / expected, of steps after the first ones.
  double relative_error() const { return relative_error_; }

  /// What was learnt.
  CostTable table() const;

 private:
  /// One point of rows.
  struct Bin {
    double seconds = 0;
    double weight = 0;  // steps; 0: nothing known
    double clean = 0;   // of these, those whose drafting seconds were known
    double keys = 0;
    double experts = 0;  // 0: unknown
  };
  /// What is usual for a number of rows.
  struct Usual {
    double seconds = 0;
    double keys = 0;
    double experts = 0;
  };

  void learn(const StepShape& shape, const StepSeconds& seconds, double evidence);
  Usual usual(int64_t rows) const;
  double linear(const StepShape& shape, const Usual& usual) const;
  double observe_drafting(const StepShape& shape, const StepSeconds& seconds, double evidence);
  void observe_linear(const StepShape& shape, const Usual& usual, double residual, double seconds);
  void observe_rows(const StepShape& shape, double residual, double evidence);
  void observe_level(int64_t rows, double relative);
  std::vector<RowCosts::Point> curve(double keys_per_row) const;

  std::vector<Bin> bins_;
  FadingPlane beyond_usual_;  // keys and experts
  double rise_per_key_ = 0;
  double seconds_per_expert_ = 0;
  double expert_ratio_ = 1;  // experts of recent steps to the usual
  FadingLine drafting_;      // by sequences
  double relative_error_ = 0;
  double surprise_ = 0;  // mean of (seconds − expected) / expected, of very recent steps
};

}  // namespace di::sched
