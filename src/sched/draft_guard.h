// DraftGuard: whether drafts pay at all, found out by trying both. Pure host logic; counts steps,
// knows no clock.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sched/draft_costs.h"

namespace di::sched {

/// What a step does about drafts.
enum class DraftPhase {
  kOff,     ///< nobody verifies, nobody drafts: drafts do not pay, or a control step
  kResume,  ///< nobody has drafts to verify; they are made for the next step
  kDraft,   ///< drafts are verified and made
};

/// A step that has run, without prompt rows.
struct GuardSample {
  int64_t sequences = 0;  ///< that decoded
  int64_t tokens = 0;     ///< that they gained
  int64_t key_pairs = 0;  ///< of one row each; 0: unknown
  double seconds = 0;
};

/// Compares tokens a second with and without drafts, for each octave of the number of sequences by
/// itself: what is true of one load says little of another, and a load that comes back finds its
/// verdict. Within an octave, steps are made alike by what the cost model expects of them without
/// drafts, so only its error between like steps remains.
///
/// While drafts are in use, about one step in 64 is a control step (one in 8 at first). They are
/// given up when they lose by more than chance. Then they rest for 64 steps, twice as many each
/// time that a trial fails, and in any case for so long that the loss of the trial is below a
/// hundredth.
class DraftGuard {
 public:
  DraftGuard();

  /// The phase of the next step. `sequences`: that decode in it; `pure`: no prompt rows.
  DraftPhase plan(int64_t sequences, bool pure);

  /// What became of a step that plan() gave `phase`.
  void observe(DraftPhase phase, const GuardSample& sample, const DraftCosts& costs);

  /// True when drafts are in use at the present load.
  bool drafting() const { return !regime().resting; }
  /// Tokens a second with drafts over those without, at the present load; 0: not known yet.
  double advantage() const { return regime().advantage; }
  int64_t num_control() const { return num_control_; }
  int64_t num_trials() const { return num_trials_; }

 private:
  /// The newest samples.
  struct Window {
    std::vector<GuardSample> samples;
    std::size_t next = 0;
    void add(const GuardSample& sample, std::size_t most);
    void clear();
  };
  /// One octave.
  struct Regime {
    Window drafts;
    Window off;
    bool resting = false;
    int64_t since_control = 0;  // steps
    int64_t began = 0;          // step at which drafts came into use
    int64_t due = 0;            // step of the next trial, while resting
    int64_t failed = 0;         // trials in a row
    double advantage = 0;
  };

  Regime& regime() { return regimes_[current_]; }
  const Regime& regime() const { return regimes_[current_]; }
  std::size_t octave(int64_t sequences) const;
  bool control_is_due(Regime& regime);
  void judge(Regime& regime, const DraftCosts& costs);
  void rest(Regime& regime, double lost_steps);

  std::array<Regime, 20> regimes_;
  std::size_t current_ = 0;
  int64_t step_ = 0;
  DraftPhase last_ = DraftPhase::kOff;
  int64_t num_control_ = 0;
  int64_t num_trials_ = 0;
};

}  // namespace di::sched
