#include "sched/draft_control.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace di::sched {
namespace {

constexpr int64_t kLongestPause = 512;
constexpr int64_t kFewSteps = 12;   // before a sequence is judged
constexpr int64_t kManySteps = 32;  // after which one that gains is trusted again
constexpr double kGainRate = 1.0 / 16;
constexpr double kRecentKeep = 31.0 / 32;
constexpr double kEvidence = 8;     // drafts for which confidences are believed at first
constexpr double kOwnEvidence = 4;  // and for which those of a sequence are as those of others

}  // namespace

bool DraftKnowledge::is_sound() const {
  int64_t octave = -1;
  for (const DraftVerdict& verdict : verdicts) {
    if (!verdict.is_sound() || verdict.octave <= octave) return false;
    octave = verdict.octave;
  }
  return costs.is_sound();
}

DraftControl::DraftControl(
    const DraftControlOptions& options, DraftCosts costs, std::span<const DraftVerdict> verdicts
)
    : options_(options),
      costs_(std::move(costs)),
      guard_(options.control_steps, verdicts, costs_) {}

DraftOrders DraftControl::plan(const DraftStep& step) {
  DraftOrders orders;
  orders.drafts.assign(step.drawing.size(), 0);
  orders.trust.assign(step.drawing.size(), 1);
  if (options_.mode == DraftMode::kOff) return orders;
  if (options_.mode == DraftMode::kStatic) {
    orders.max_verified = options_.num_drafts;
    orders.phase = DraftPhase::kDraft;
    orders.rests = false;
    orders.drafts.assign(step.drawing.size(), 1);
    return orders;
  }
  int64_t begun = 0;
  for (const SequenceId id : step.drawing)
    begun += sequences_.try_emplace(id).second ? 1 : 0;
  orders.phase = guard_.plan(step.num_decoding, step.prefill_rows == 0, begun);
  orders.rests = !guard_.drafting();
  if (orders.phase == DraftPhase::kOff) return orders;
  if (orders.verifies()) orders.max_verified = options_.num_drafts;
  StepForecast forecast{.rows = step.num_decoding + step.prefill_rows};
  forecast.drafts = step.num_decoding * options_.num_drafts;
  forecast.keys_per_row = static_cast<double>(step.key_pairs) /
                          static_cast<double>(std::max<int64_t>(forecast.rows, 1));
  orders.costs = costs_.costs_for(forecast);
  const double usual = trust_.factor(1, kEvidence);
  for (std::size_t i = 0; i < step.drawing.size(); ++i) {
    Known& known = sequences_.at(step.drawing[i]);
    orders.drafts[i] = drafts(known.pause) ? 1 : 0;
    orders.trust[i] = known.trust.factor(usual, kOwnEvidence);
  }
  return orders;
}

bool DraftControl::drafts(Pause& pause) {
  if (pause.left == 0) return true;
  --pause.left;
  return false;
}

void DraftControl::observe(const DraftOutcome& outcome) {
  observe_trust(outcome.sequences);
  const double seconds = costs_.plausible(outcome.shape, outcome.seconds.total);
  costs_.observe(outcome.shape, outcome.seconds);
  if (options_.mode != DraftMode::kAdaptive || !(outcome.seconds.total > 0)) return;
  if (outcome.shape.prefill_rows == 0 && outcome.num_decoding > 0 && outcome.shape.rows > 0) {
    GuardSample sample{outcome.num_decoding, outcome.num_tokens};
    sample.key_pairs = outcome.shape.key_pairs * outcome.num_decoding / outcome.shape.rows;
    sample.seconds = seconds;
    guard_.observe(outcome.phase, sample, costs_);
    if (outcome.phase == DraftPhase::kDraft) {
      recent_seconds_ = recent_seconds_ * kRecentKeep + sample.seconds;
      recent_tokens_ = recent_tokens_ * kRecentKeep + static_cast<double>(outcome.num_tokens);
    }
  }
  if (outcome.phase == DraftPhase::kDraft) observe_sequences(outcome);
}

void DraftControl::observe_trust(std::span<const SequenceDrafts> sequences) {
  for (const SequenceDrafts& drafts : sequences) {
    if (drafts.verified == 0) continue;
    trust_.observe(drafts.expected, drafts.accepted);
    const auto found = sequences_.find(drafts.id);
    if (found != sequences_.end()) found->second.trust.observe(drafts.expected, drafts.accepted);
  }
}

// What a row of the last ones costs: a quarter of those for drafts, or a sequence's if that is
// more.
double DraftControl::draft_row_seconds(const DraftOutcome& outcome) const {
  int64_t verified = 0, most = 0;
  for (const SequenceDrafts& sequence : outcome.sequences) {
    verified += sequence.verified;
    most = std::max(most, sequence.verified);
  }
  if (verified == 0) return 0;
  const int64_t last = std::max(most, verified / 4);
  StepShape with{.rows = outcome.shape.rows, .key_pairs = outcome.shape.key_pairs};
  StepShape without{.rows = std::max<int64_t>(with.rows - last, 1)};
  without.key_pairs = with.key_pairs * without.rows / with.rows;
  const double seconds = costs_.expected(with) - costs_.expected(without);
  return std::max(seconds, 0.0) / static_cast<double>(last);
}

// What a sequence's drafts saved: the seconds that its accepted tokens are worth at the present
// rate, without those of its rows and its share of drafting.
void DraftControl::observe_sequences(const DraftOutcome& outcome) {
  if (!(recent_tokens_ > 0)) return;
  const double token = recent_seconds_ / recent_tokens_;
  const double row = draft_row_seconds(outcome);
  double share = 0;
  if (outcome.shape.drafting > 0)
    share = costs_.drafting(outcome.shape.drafting) / static_cast<double>(outcome.shape.drafting);
  for (const SequenceDrafts& sequence : outcome.sequences) {
    const double gain = token * static_cast<double>(sequence.accepted) -
                        row * static_cast<double>(sequence.verified) -
                        (sequence.drafted ? share : 0);
    observe_gain(sequence.id, gain);
  }
}

void DraftControl::observe_gain(SequenceId id, double gain) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second.pause.left > 0) return;
  Pause& pause = found->second.pause;
  const double rate = std::max(kGainRate, 1 / static_cast<double>(++pause.evidence));
  pause.gain += rate * (gain - pause.gain);
  pause.square += rate * (gain * gain - pause.square);
  if (pause.evidence < kFewSteps) return;
  const double spread = std::sqrt(std::max(0.0, pause.square - pause.gain * pause.gain));
  const auto count = static_cast<double>(std::min(pause.evidence, kManySteps));
  if (pause.gain + spread / std::sqrt(count) < 0) {
    pause = {.left = pause.next, .next = std::min(2 * pause.next, kLongestPause)};
  } else if (pause.evidence >= kManySteps && pause.gain > 0) {
    pause.next = kFirstPause;
  }
}

void DraftControl::forget(SequenceId id) {
  sequences_.erase(id);
}

DraftControlState DraftControl::state() const {
  DraftControlState state;
  state.cost_error = costs_.relative_error();
  state.drafting = options_.mode == DraftMode::kStatic;
  if (options_.mode != DraftMode::kAdaptive) return state;
  state.drafting = guard_.drafting();
  state.advantage = guard_.advantage();
  state.num_control = guard_.num_control();
  state.num_trials = guard_.num_trials();
  for (const auto& [id, known] : sequences_)
    state.num_paused += known.pause.left > 0 ? 1 : 0;
  return state;
}

}  // namespace di::sched
