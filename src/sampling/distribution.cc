// Cuts, draws and logprobs over ranked masses; see distribution.h.
#include "sampling/distribution.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

/// The token at `share` of the first `kept` of the mass.
int32_t token_at_share(RankedMasses& masses, uint64_t kept, double share) {
  const auto below = static_cast<uint64_t>(share * static_cast<double>(kept));
  return masses.find({Measure::kMass, std::min(below, kept - 1) + 1}).token.token;
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
  return token_at_share(*masses_, kept_, share);
}

bool Distribution::is_cut(int32_t token) {
  if (kept_ == masses_->all()) return false;
  if (!last_) last_ = masses_->find({Measure::kMass, kept_}).token;
  return ranks_before(*last_, {logits_[static_cast<std::size_t>(token)], token});
}

double Distribution::logprob(int32_t token) {
  const auto index = static_cast<std::size_t>(token);
  if (!masses_) return peak_.usable && index == peak_.index ? 0 : kLogprobFloor;
  if (is_cut(token)) return kLogprobFloor;
  const double mass = static_cast<double>(kept_) / kUnitMass;
  return std::max(-scale_.distance(logits_[index]) - std::log(mass), kLogprobFloor);
}

uint64_t Distribution::mass_of_token(int32_t token) {
  const auto index = static_cast<std::size_t>(token);
  if (!masses_) return index == peak_.index ? 1 : 0;
  if (is_cut(token)) return 0;
  uint64_t mass = 0;
  row_kernels().weigh_each(&logits_[index], 1, scale_, &mass);
  return mass;
}

std::vector<TokenMass> Distribution::best(int64_t count) {
  if (!masses_) return {{static_cast<int32_t>(peak_.index), 1}};
  std::vector<TokenMass> best;
  for (const Ranked& ranked : best_tokens(logits_, count)) {
    const uint64_t mass = mass_of_token(ranked.token);
    if (mass > 0) best.push_back({ranked.token, mass});
  }
  return best;
}

int32_t Distribution::token_outside(std::span<const int32_t> tokens, double share) {
  if (!masses_) return static_cast<int32_t>(peak_.index);
  // The others rank as before, so what the cuts keep of them still comes first.
  std::vector<double> others(logits_.begin(), logits_.end());
  uint64_t kept = kept_;
  for (const int32_t token : tokens) {
    kept -= mass_of_token(token);
    others[static_cast<std::size_t>(token)] = -std::numeric_limits<double>::infinity();
  }
  RankedMasses masses(others, scale_, 0);
  return token_at_share(masses, kept, share);
}

}  // namespace di::sampling
