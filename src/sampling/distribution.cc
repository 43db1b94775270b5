// Cuts, draws and logprobs over ranked masses; see distribution.h.
#include "sampling/distribution.h"

#include <algorithm>
#include <cmath>

#include "sampling/fixed_exp.h"

namespace di::sampling {
namespace {

/// The mass that top_k, top_p and min_p leave. Each keeps the best tokens, so the least one rules.
uint64_t kept_mass(RankedMasses& masses, const SamplingParams& params) {
  uint64_t kept = masses.all();
  if (params.top_k > 0) {
    kept = masses.find({Measure::kCount, static_cast<uint64_t>(params.top_k)}).mass;
  }
  if (params.top_p < 1) {
    const double mark = std::ceil(params.top_p * static_cast<double>(kept));
    kept = masses.find({Measure::kMass, std::min(static_cast<uint64_t>(mark), kept)}).mass;
  }
  return std::min(kept, masses.above_floor());
}

}  // namespace

Distribution::Distribution(
    std::span<const double> logits, const Peak& peak, const SamplingParams& params
)
    : logits_(logits), peak_(peak) {
  if (!peak.usable || params.temperature == 0) return;
  // A temperature that is next to nothing has no reciprocal; any large number does.
  scale_ = {peak.value, std::min(1 / params.temperature, 1e300)};
  masses_.emplace(logits, scale_, params.min_p);
  kept_ = kept_mass(*masses_, params);
}

int32_t Distribution::token_at(double share) {
  if (!masses_) return static_cast<int32_t>(peak_.index);
  const auto below = static_cast<uint64_t>(share * static_cast<double>(kept_));
  return masses_->find({Measure::kMass, std::min(below, kept_ - 1) + 1}).token.token;
}

double Distribution::logprob(int32_t token) {
  const auto index = static_cast<std::size_t>(token);
  if (!masses_) return peak_.usable && index == peak_.index ? 0 : kLogprobFloor;
  if (kept_ < masses_->all()) {
    if (!last_) last_ = masses_->find({Measure::kMass, kept_}).token;
    if (ranks_before(*last_, {logits_[index], token})) return kLogprobFloor;
  }
  const double mass = static_cast<double>(kept_) / kUnitMass;
  return std::max(-scale_.distance(logits_[index]) - std::log(mass), kLogprobFloor);
}

}  // namespace di::sampling
