// DraftControl: decides while an engine runs who drafts, who verifies, and whether drafts pay at
// all. Pure host logic on the engine's thread; no clock of its own.
//
// Use. When step n + 1 is planned, whatever of the steps before is still in flight:
//   DraftOrders orders = control.plan(step);  // travels with the step to the device
// When its results are applied, steps in order:
//   control.observe(outcome);                 // with the orders' phase
// When a sequence is over for good (not when it is preempted):
//   control.forget(id);
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "sched/draft_costs.h"
#include "sched/draft_guard.h"
#include "sched/draft_trust.h"
#include "sched/scheduler.h"

namespace di::sched {

/// How drafts are used.
enum class DraftMode {
  kOff,       ///< none are made
  kStatic,    ///< every sequence verifies and makes num_drafts in every step
  kAdaptive,  ///< as many as pay, by measured costs and confidences
};

struct DraftControlOptions {
  DraftMode mode = DraftMode::kOff;
  int64_t num_drafts = 0;     ///< of a sequence and step at most
  int64_t control_steps = 1;  ///< without drafts in a row; 2 where the first one behind drafts
                              ///< costs more than others of its like
};

/// A step that is being planned.
struct DraftStep {
  std::span<const SequenceId> drawing = {};  ///< sequences that draw in it: decoding, or prompts
                                             ///< that end with it
  int64_t num_decoding = 0;                  ///< sequences among them that decode
  int64_t prefill_rows = 0;
  int64_t key_pairs = 0;  ///< of the step without drafts, as StepShape's; 0: unknown
};

/// What becomes of a step's drafts. Plain values; travels to the device.
struct DraftOrders {
  DraftPhase phase = DraftPhase::kOff;
  bool rests = true;         ///< drafts are not in use; false in a control
  int64_t max_verified = 0;  ///< drafts of a sequence at most; 0 unless in kDraft
  std::shared_ptr<const StepCosts> costs = nullptr;  ///< to choose by; null: verify max_verified
  std::vector<uint8_t> drafts = {};  ///< for each of DraftStep::drawing: 1 when drafts are made for
                                     ///< it after the draws, if it goes on
  std::vector<double> trust = {};    ///< for each of these: how far its survivals are believed()

  /// True when drafts that were made before are verified.
  bool verifies() const { return phase == DraftPhase::kDraft; }
};

/// What became of one sequence's drafts.
struct SequenceDrafts {
  SequenceId id = kNoSequence;
  int64_t verified = 0;  ///< drafts that were rows of the step
  int64_t accepted = 0;  ///< of these
  double expected = 0;   ///< to be accepted: the sum of their survivals
  bool drafted = false;  ///< drafts were made for it after the draws
};

/// A step that has run.
struct DraftOutcome {
  DraftPhase phase = DraftPhase::kOff;  ///< of its orders
  StepShape shape = {};
  StepSeconds seconds = {};
  int64_t num_decoding = 0;  ///< sequences with a decode row; rows that were dropped do not count
  int64_t num_tokens = 0;    ///< that those gained: 1 + accepted each
  std::span<const SequenceDrafts> sequences = {};  ///< that verified, drafted, or both
};

/// What a control has learnt: kept from run to run.
struct DraftKnowledge {
  CostTable costs = {};
  std::vector<DraftVerdict> verdicts = {};  ///< ascending in octaves

  bool operator==(const DraftKnowledge&) const = default;

  /// True when a control can have learnt it.
  bool is_sound() const;
};

/// For statistics.
struct DraftControlState {
  bool drafting = false;    ///< drafts are in use at the present load
  double advantage = 0;     ///< tokens a second with drafts over those without; 0: not known yet
  double cost_error = 0;    ///< DraftCosts::relative_error()
  int64_t num_control = 0;  ///< controls since the start
  int64_t num_trials = 0;   ///< times that drafts were tried anew after they had not paid
  int64_t num_paused = 0;   ///< sequences that pause at the moment
};

/// Adaptive mode in four parts:
/// - Costs are learnt from every step; the device chooses by them (drafts_by_early_stop).
/// - Trust. Confidences are believed as far as recent ones came true, those of the same sequence
///   above all.
/// - Guard. About one step in 64 is a control step, and tokens a second with and without drafts are
///   compared, for each octave of the number of sequences by itself, on steps without prompt rows.
///   When drafts do not pay they rest, and are tried anew after a time that doubles, and that is
///   long enough for trials to cost no more than a hundredth.
/// - Pauses. A sequence whose drafts gain less than verifying them and its share of drafting cost
///   makes none for some steps; each time that it fails again, for twice as many.
///
/// Thread: one at a time. Memory: a few numbers for each sequence that is not yet forgotten. Cost:
/// plan() and observe() take 3 us together with one sequence, 5 us with 64.
class DraftControl {
 public:
  /// `costs`: of a profile or a file; empty ones do. `verdicts`: sound ones, of a file.
  explicit DraftControl(
      const DraftControlOptions& options,
      DraftCosts costs = {},
      std::span<const DraftVerdict> verdicts = {}
  );

  /// The orders of the next step. Sequences that are not known yet become known.
  DraftOrders plan(const DraftStep& step);

  /// What became of a step. Sequences that were forgotten meanwhile are ignored.
  void observe(const DraftOutcome& outcome);

  /// A sequence is over. One that is preempted is not: its drafts come back with it.
  void forget(SequenceId id);

  const DraftCosts& costs() const { return costs_; }
  DraftKnowledge knowledge() const { return {costs_.table(), guard_.verdicts()}; }
  DraftControlState state() const;
  /// Sequences that are known: for tests.
  std::size_t num_sequences() const { return sequences_.size(); }

 private:
  static constexpr int64_t kFirstPause = 16;
  static constexpr double kSequenceKeep = 31.0 / 32;
  static constexpr double kKeep = 127.0 / 128;

  /// What is known of a sequence's drafts.
  struct Pause {
    double gain = 0;       // mean seconds that a step's drafts saved, of recent steps
    double square = 0;     // mean of their squares
    int64_t evidence = 0;  // steps
    int64_t left = 0;      // steps that it still pauses
    int64_t next = kFirstPause;
  };

  /// A sequence.
  struct Known {
    Pause pause = {};
    DraftTrust trust{kSequenceKeep};
  };

  static bool drafts(Pause& pause);
  double draft_row_seconds(const DraftOutcome& outcome) const;
  void observe_trust(std::span<const SequenceDrafts> sequences);
  void observe_sequences(const DraftOutcome& outcome);
  void observe_gain(SequenceId id, double gain);

  DraftControlOptions options_;
  DraftCosts costs_;
  DraftGuard guard_;
  std::unordered_map<SequenceId, Known> sequences_;
  DraftTrust trust_{kKeep};    // of all
  double recent_seconds_ = 0;  // of steps with drafts, fading
  double recent_tokens_ = 0;
};

}  // namespace di::sched
