#include "sched/draft_guard.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace di::sched {
namespace {

constexpr std::size_t kDraftSamples = 64;
constexpr std::size_t kOffSamples = 16;
constexpr std::size_t kFewDrafts = 8;  // before anything is judged
constexpr std::size_t kFewOff = 4;
constexpr std::size_t kEnoughOff = 8;  // for control steps to become rare
constexpr int64_t kControlInterval = 64;
constexpr int64_t kFirstControlInterval = 8;
constexpr int64_t kFirstRest = 64;
constexpr int64_t kMostDoublings = 4;
constexpr int64_t kLongestRest = 16384;
constexpr double kTrialShare = 0.01;  // of the time, that trials may lose
constexpr int64_t kStayed = 512;      // steps after which a trial had succeeded
constexpr double kLoses = 0.99;       // an advantage below, over a whole window

/// Seconds that the cost model expects for a sample's tokens without drafts, over its seconds.
struct Rate {
  double value = 0;
  double error = 0;  // its standard error
};

Rate rate_of(const std::vector<GuardSample>& samples, const DraftCosts& costs) {
  std::vector<std::pair<double, double>> terms;  // expected, taken
  double expected = 0, taken = 0;
  for (const GuardSample& sample : samples) {
    const double step = costs.expected({.rows = sample.sequences, .key_pairs = sample.key_pairs});
    const double steps = static_cast<double>(sample.tokens) / static_cast<double>(sample.sequences);
    terms.emplace_back(step * steps, sample.seconds);
    expected += terms.back().first;
    taken += sample.seconds;
  }
  Rate rate{expected / taken, 0};
  for (const auto& [e, t] : terms)
    rate.error += (e - rate.value * t) * (e - rate.value * t);
  rate.error = std::sqrt(rate.error) / taken;
  return rate;
}

}  // namespace

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

DraftGuard::DraftGuard() = default;

// An octave is left only when a quarter beyond its edge: a load at the edge stays in one.
std::size_t DraftGuard::octave(int64_t sequences) const {
  const int64_t low = int64_t{1} << current_;
  if (4 * sequences >= 3 * low && 4 * sequences < 10 * low) return current_;
  const auto found = static_cast<std::size_t>(std::bit_width(static_cast<uint64_t>(sequences)) - 1);
  return std::min(found, regimes_.size() - 1);
}

bool DraftGuard::control_is_due(Regime& regime) {
  const bool early = regime.off.samples.size() < kEnoughOff;
  // A step more or less from time to time, lest control steps fall in with something periodic.
  const int64_t interval = early ? kFirstControlInterval : kControlInterval - step_ % 7;
  if (++regime.since_control < interval || last_ != DraftPhase::kDraft) return false;
  regime.since_control = 0;
  ++num_control_;
  return true;
}

DraftPhase DraftGuard::plan(int64_t sequences, bool pure) {
  ++step_;
  if (sequences > 0) current_ = octave(sequences);
  Regime& now = regime();
  if (now.resting && step_ >= now.due && pure && sequences > 0) {
    now.resting = false;
    now.began = step_;
    now.since_control = 0;
    now.drafts.clear();
    ++num_trials_;
  }
  DraftPhase phase = DraftPhase::kOff;
  if (!now.resting && !(pure && sequences > 0 && control_is_due(now)))
    phase = last_ == DraftPhase::kOff ? DraftPhase::kResume : DraftPhase::kDraft;
  last_ = phase;
  return phase;
}

void DraftGuard::observe(DraftPhase phase, const GuardSample& sample, const DraftCosts& costs) {
  if (sample.sequences <= 0 || !(sample.seconds > 0) || phase == DraftPhase::kResume) return;
  Regime& now = regimes_[octave(sample.sequences)];
  if (phase == DraftPhase::kOff) {
    now.off.add(sample, kOffSamples);
  } else if (!now.resting) {
    now.drafts.add(sample, kDraftSamples);
    judge(now, costs);
  }
}

void DraftGuard::judge(Regime& now, const DraftCosts& costs) {
  const std::size_t count = now.drafts.samples.size();
  if (count < kFewDrafts || now.off.samples.size() < kFewOff) return;
  const Rate with = rate_of(now.drafts.samples, costs);
  const Rate without = rate_of(now.off.samples, costs);
  now.advantage = with.value / without.value;
  const double error =
      now.advantage * std::hypot(with.error / with.value, without.error / without.value);
  const double chance = (2 + 8 / static_cast<double>(count)) * error;
  const bool loses = now.advantage + chance < 1;
  if (!loses && (count < kDraftSamples || now.advantage >= kLoses)) return;
  // Steps without drafts that fit into the seconds lost.
  rest(now, static_cast<double>(count) * (1 / now.advantage - 1));
}

void DraftGuard::rest(Regime& now, double lost_steps) {
  if (step_ - now.began > kStayed) now.failed = 0;
  const int64_t wait = kFirstRest << std::min(now.failed, kMostDoublings);
  const double paid = std::min(lost_steps / kTrialShare, static_cast<double>(kLongestRest));
  now.due = step_ + std::max(wait, static_cast<int64_t>(paid));
  now.resting = true;
  ++now.failed;
}

}  // namespace di::sched
