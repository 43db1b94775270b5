#include "sched/draft_guard.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace di::sched {
namespace {

constexpr std::size_t kDraftSamples = 64;
constexpr std::size_t kOffSamples = 16;
constexpr std::size_t kFewSamples = 4;  // before anything is judged
constexpr std::size_t kEnoughOff = 8;   // for control steps to become rare,
constexpr double kClearGain = 1.2;      // unless the first ones, or an earlier run, leave no doubt
constexpr int64_t kControlInterval = 64;
constexpr int64_t kFirstControlInterval = 8;
constexpr double kControlShare = 0.01;  // of the time, that control steps may lose
constexpr int64_t kFirstRest = 64;
constexpr int64_t kShortestRest = 16;
constexpr int64_t kLastingRests = 4;  // rests before other costs end them
constexpr int64_t kMostDoublings = 4;
constexpr int64_t kMostFailed = 1000;
constexpr double kMostAdvantage = 1000;
constexpr double kTrialShare = 0.005;  // of the steps, that trials may lose
constexpr double kGainShare = 0.1;     // of the steps that drafts gain, that trials may lose
constexpr double kMostDebt = 64;
constexpr double kMostCredit = 8;
constexpr int64_t kStayed = 512;     // steps after which a trial had succeeded
constexpr double kLoses = 0.99;      // an advantage below, over a whole window
constexpr double kOffOutlier = 2;    // times the median
constexpr double kDraftOutlier = 4;  // their rows differ
constexpr double kOtherCost = 1.4;   // times

/// Steps of rest behind so many trials in a row that failed.
int64_t rest_after(int64_t failed) {
  return kFirstRest << std::clamp<int64_t>(failed - 1, 0, kMostDoublings);
}

/// Seconds that the cost model expects for a sample's tokens without drafts, over its seconds.
struct Rate {
  double value = 0;
  double error = 0;  // its standard error
};

/// `outlier`: times the median at which the seconds of a sequence's step end.
Rate rate_of(const std::vector<GuardSample>& samples, const DraftCosts& costs, double outlier) {
  struct Term {
    double expected, tokens, taken;
  };
  std::vector<Term> terms;
  std::vector<double> ratios;
  for (const GuardSample& sample : samples) {
    const double step = costs.expected({.rows = sample.sequences, .key_pairs = sample.key_pairs});
    const double steps = static_cast<double>(sample.tokens) / static_cast<double>(sample.sequences);
    terms.push_back({step, steps, sample.seconds});
    ratios.push_back(sample.seconds / step);
  }
  const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  double expected = 0, taken = 0;
  for (Term& term : terms) {
    term.taken = std::min(term.taken, outlier * *middle * term.expected);
    expected += term.expected * term.tokens;
    taken += term.taken;
  }
  Rate rate{expected / taken, 0};
  for (const Term& term : terms) {
    const double miss = term.expected * term.tokens - rate.value * term.taken;
    rate.error += miss * miss;
  }
  rate.error = std::sqrt(rate.error) / taken;
  return rate;
}

}  // namespace

bool DraftVerdict::is_sound() const {
  const bool is_octave = octave >= 0 && octave < static_cast<int64_t>(kGuardOctaves);
  const bool is_gain = advantage > 0 && advantage <= kMostAdvantage;
  return is_octave && is_gain && failed >= 0 && failed <= kMostFailed && debt >= -kMostCredit &&
         debt <= kMostDebt;
}

DraftGuard::DraftGuard(
    int64_t control_steps, std::span<const DraftVerdict> verdicts, const DraftCosts& costs
)
    : control_steps_(control_steps) {
  if (costs.is_empty()) return;
  for (const DraftVerdict& verdict : verdicts) {
    DI_CHECK(verdict.is_sound(), "verdicts are checked before they are used");
    Regime& regime = regimes_[static_cast<std::size_t>(verdict.octave)];
    regime.advantage = verdict.advantage;
    regime.failed = verdict.failed;
    regime.debt = verdict.debt;
    if (!verdict.resting) continue;
    regime.met = regime.resting = true;
    regime.rest = rest_after(verdict.failed);
    regime.cost_rows = int64_t{1} << verdict.octave;
    regime.cost_seconds = costs.expected({.rows = regime.cost_rows});
  }
}

std::vector<DraftVerdict> DraftGuard::verdicts() const {
  std::vector<DraftVerdict> verdicts;
  for (std::size_t i = 0; i < kGuardOctaves; ++i) {
    const Regime& regime = regimes_[i];
    DraftVerdict verdict{.octave = static_cast<int64_t>(i), .advantage = regime.advantage};
    verdict.resting = regime.resting;
    verdict.failed = std::min(regime.failed, kMostFailed);
    verdict.debt = regime.debt;
    if (verdict.is_sound()) verdicts.push_back(verdict);
  }
  return verdicts;
}

void DraftGuard::Window::add(const GuardSample& sample, std::size_t most) {
  if (samples.size() < most) {
    samples.push_back(sample);
  } else {
    samples[next] = sample;
    next = (next + 1) % most;
  }
}

void DraftGuard::Window::clear() {
  samples.clear();
  next = 0;
}

// An octave is left only when a quarter beyond its edge: a load at the edge stays in one.
std::size_t DraftGuard::octave(int64_t sequences) const {
  const int64_t low = int64_t{1} << current_;
  if (4 * sequences >= 3 * low && 4 * sequences < 10 * low) return current_;
  const auto found = static_cast<std::size_t>(std::bit_width(static_cast<uint64_t>(sequences)) - 1);
  return std::min(found, regimes_.size() - 1);
}

bool DraftGuard::is_control(Regime& now) {
  if (control_left_ > 0) {
    --control_left_;
    return true;
  }
  // A step less from time to time, lest control steps fall in with something periodic.
  int64_t interval = kFirstControlInterval;
  if (now.off.samples.size() >= kEnoughOff || now.advantage > kClearGain) {
    const double lost = now.advantage > 1 ? around() * (1 - 1 / now.advantage) : 0;
    interval = std::max(kControlInterval, static_cast<int64_t>(lost / kControlShare)) - step_ % 7;
  }
  const bool first = !std::exchange(now.met, true);
  if (!first && (++now.since_control < interval || last_ != DraftPhase::kDraft)) return false;
  now.since_control = 0;
  ++num_control_;
  control_left_ = control_steps_ - 1;
  return true;
}

bool DraftGuard::trial_is_due(const Regime& now, int64_t sequences) const {
  const int64_t steps = step_ - now.rested;
  if (now.cost_changed && steps >= kLastingRests * now.rest) return true;
  const bool others = now.begun >= sequences && steps >= kShortestRest;
  return now.debt <= 0 && (steps >= now.rest || others);
}

void DraftGuard::begin(Regime& now) {
  now.resting = false;
  now.began = step_;
  now.since_control = 0;
  now.drafts.clear();
  ++num_trials_;
}

DraftPhase DraftGuard::plan(int64_t sequences, bool pure, int64_t begun) {
  ++step_;
  if (sequences > 0) current_ = octave(sequences);
  Regime& now = regime();
  const bool comparable = pure && sequences > 0;
  if (now.resting) {
    now.begun += begun;
    now.debt -= kTrialShare;
    if (comparable && trial_is_due(now, sequences)) begin(now);
  }
  DraftPhase phase = DraftPhase::kOff;
  if (!now.resting && !(comparable && is_control(now)))
    phase = last_ == DraftPhase::kOff ? DraftPhase::kResume : DraftPhase::kDraft;
  if (phase != DraftPhase::kOff || now.resting) control_left_ = 0;  // cut short
  last_ = phase;
  return phase;
}

void DraftGuard::observe(DraftPhase phase, const GuardSample& sample, const DraftCosts& costs) {
  if (sample.sequences <= 0 || !(sample.seconds > 0) || phase == DraftPhase::kResume) return;
  Regime& now = regimes_[octave(sample.sequences)];
  if (phase == DraftPhase::kOff) {
    now.off.add(sample, kOffSamples);
    if (!now.resting) return;
    const double change = costs.expected({.rows = now.cost_rows}) / now.cost_seconds;
    now.cost_changed = change > kOtherCost || change < 1 / kOtherCost;
  } else if (!now.resting) {
    now.drafts.add(sample, kDraftSamples);
    if (now.advantage > 1)
      now.debt = std::max(now.debt - kGainShare * (1 - 1 / now.advantage), -kMostCredit);
    judge(now, costs);
  }
}

void DraftGuard::judge(Regime& now, const DraftCosts& costs) {
  const std::size_t count = now.drafts.samples.size();
  if (count < kFewSamples || now.off.samples.size() < kFewSamples) return;
  const Rate with = rate_of(now.drafts.samples, costs, kDraftOutlier);
  const Rate without = rate_of(now.off.samples, costs, kOffOutlier);
  now.advantage = with.value / without.value;
  const double error =
      now.advantage * std::hypot(with.error / with.value, without.error / without.value);
  const double chance = (2 + 8 / static_cast<double>(count)) * error;
  const bool loses = now.advantage + chance < 1;
  if (!loses && (count < kDraftSamples || now.advantage >= kLoses)) return;
  now.cost_rows = now.off.samples.back().sequences;
  now.cost_seconds = costs.expected({.rows = now.cost_rows});
  // Steps without drafts that would have fitted into the seconds lost.
  rest(now, (static_cast<double>(count) + around()) * (1 / now.advantage - 1));
}

void DraftGuard::rest(Regime& now, double lost_steps) {
  if (step_ - now.began > kStayed) now.failed = 0;
  now.resting = true;
  now.rested = step_;
  now.rest = rest_after(++now.failed);
  now.begun = 0;
  now.debt = std::min(now.debt + std::max(lost_steps, 0.0), kMostDebt);
  now.cost_changed = false;
}

}  // namespace di::sched
