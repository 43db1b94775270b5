// DraftGuard: whether drafts pay at all, found out by trying both. Pure host logic; counts steps,
// knows no clock.
#pragma once

#include <array>
#include <cstdint>
#include <span>
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

/// Octaves of the number of sequences that are told apart; the last one has all beyond.
inline constexpr std::size_t kGuardOctaves = 20;

/// What was found out at one load: kept from run to run.
struct DraftVerdict {
  int64_t octave = 0;    ///< of the number of sequences: 2^octave and more
  double advantage = 0;  ///< tokens a second with drafts over those without
  bool resting = false;  ///< drafts did not pay when they were tried last
  int64_t failed = 0;    ///< trials in a row that failed
  double debt = 0;  ///< steps that trials have lost and rest has not made up for; below 0: gained

  bool operator==(const DraftVerdict&) const = default;

  /// True when a guard can have told it: no other may be given to one.
  bool is_sound() const;
};

/// Compares tokens a second with and without drafts, for each octave of the number of sequences by
/// itself: what is true of one load says little of another, and a load that comes back finds its
/// verdict. Within an octave, steps are made alike by what the cost model expects of them without
/// drafts, so only its error between like steps remains.
///
/// The first step of an octave is a control. While drafts are in use, one in 64 is, one in 8
/// at first, and fewer where drafts gain so much that these would cost more than a hundredth.
///
/// Drafts rest when they lose by more than chance, or by a hundredth over 64 steps. They are tried
/// anew after 64 steps, twice as many each time that a trial fails, or when as many sequences have
/// begun as run; in any case only when what the last trial lost is below half a hundredth of the
/// steps since. When steps come to cost something else, they are tried after four such rests: costs
/// that change again and again, as on a busy machine, change nothing for drafts.
class DraftGuard {
 public:
  /// `control_steps`: in a row, where the first one behind drafts may tell nothing. Goes on from
  /// sound `verdicts`, one an octave: where drafts rested they do, and are tried by the same rules.
  /// `costs`: what steps cost now; without any the verdicts mean nothing.
  DraftGuard(
      int64_t control_steps, std::span<const DraftVerdict> verdicts, const DraftCosts& costs
  );

  /// The phase of the next step. `sequences`: that decode in it; `pure`: no prompt rows; `begun`:
  /// sequences that were not there before.
  DraftPhase plan(int64_t sequences, bool pure, int64_t begun);

  /// What became of a step that plan() gave `phase`.
  void observe(DraftPhase phase, const GuardSample& sample, const DraftCosts& costs);

  /// True when drafts are in use at the present load.
  bool drafting() const { return !regime().resting; }
  /// Tokens a second with drafts over those without, at the present load; 0: not known yet.
  double advantage() const { return regime().advantage; }
  /// Controls, of control_steps each.
  int64_t num_control() const { return num_control_; }
  int64_t num_trials() const { return num_trials_; }

  /// Of each octave that was judged.
  std::vector<DraftVerdict> verdicts() const;

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
    bool met = false;
    int64_t since_control = 0;  // steps
    int64_t began = 0;          // step at which drafts came into use
    bool resting = false;
    int64_t rested = 0;       // step since which they rest
    int64_t rest = 0;         // steps that they rest, unless sequences change
    int64_t begun = 0;        // sequences since then
    double debt = 0;          // steps that trials have lost and rest has not made up for
    int64_t cost_rows = 0;    // a step as it was when they came to rest,
    double cost_seconds = 0;  // and what it cost
    bool cost_changed = false;
    int64_t failed = 0;  // trials in a row
    double advantage = 0;
  };

  Regime& regime() { return regimes_[current_]; }
  const Regime& regime() const { return regimes_[current_]; }
  std::size_t octave(int64_t sequences) const;
  bool is_control(Regime& regime);
  /// Steps of a control or a trial that are not among its samples.
  double around() const { return 1 + static_cast<double>(control_steps_); }
  bool trial_is_due(const Regime& regime, int64_t sequences) const;
  void begin(Regime& regime);
  void judge(Regime& regime, const DraftCosts& costs);
  void rest(Regime& regime, double lost_steps);

  int64_t control_steps_;
  int64_t control_left_ = 0;  // steps of the control that has begun
  std::array<Regime, kGuardOctaves> regimes_;
  std::size_t current_ = 0;
  int64_t step_ = 0;
  DraftPhase last_ = DraftPhase::kOff;
  int64_t num_control_ = 0;
  int64_t num_trials_ = 0;
};

}  // namespace di::sched
