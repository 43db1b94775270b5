// Looking for a running sum: first by bands, then by ever finer parts of one; see ranked_masses.h.
#include "sampling/ranked_masses.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sampling/fixed_exp.h"

namespace di::sampling {
namespace {

/// Most rows of a model have some tens of tokens in the first band; the last one ends where masses
/// round to zero.
constexpr double kEdges[] = {0, 4, 8, 16, 32};

/// How many tokens are worked on at a time.
constexpr std::size_t kChunk = 1024;

/// Into how many parts tokens are split at a time, how few are sorted instead, and after how many
/// splits the rest is sorted however many they are.
constexpr int kParts = 256;
constexpr std::size_t kFew = 32;
constexpr int kMaxSplits = 8;

/// Equal steps of the logit from the best one down.
struct Steps {
  double top = 0;
  double per_logit = 0;

  int part_of(double logit) const {
    return std::min(static_cast<int>((top - logit) * per_logit), kParts - 1);
  }
};

/// The steps that split the range of these tokens; not finite when their logits are all the same.
Steps steps_over(std::span<const double> logits, std::span<const int32_t> tokens) {
  double best = logits[static_cast<std::size_t>(tokens[0])];
  double worst = best;
  for (const int32_t token : tokens) {
    const double logit = logits[static_cast<std::size_t>(token)];
    best = std::max(best, logit);
    worst = std::min(worst, logit);
  }
  return {best, kParts / (best - worst)};
}

}  // namespace

RankedMasses::RankedMasses(std::span<const double> logits, const MassScale& scale, double min_p)
    : logits_(logits), scale_(scale) {
  const auto floor = static_cast<uint64_t>(std::ceil(min_p * kUnitMass));
  masses_ = row_kernels().weigh(logits.data(), logits.size(), scale, floor);
}

Place RankedMasses::find(const Mark& mark) {
  Place before;
  for (int band = 0; band < kBands; ++band) {
    if (band == gathered_) gather(band, before);
    if (mark.is_reached_by(bands_[band].end)) {
      return find_among(bands_[band].tokens, before, mark);
    }
    before = bands_[band].end;
  }
  return before;
}

/// Calls use(token, logit, mass) for each token.
template <typename Use>
void RankedMasses::weigh_each(std::span<const int32_t> tokens, Use use) const {
  double logits[kChunk];
  uint64_t masses[kChunk];
  while (!tokens.empty()) {
    const auto chunk = tokens.first(std::min(kChunk, tokens.size()));
    for (std::size_t i = 0; i < chunk.size(); ++i)
      logits[i] = logits_[static_cast<std::size_t>(chunk[i])];
    row_kernels().weigh_each(logits, chunk.size(), scale_, masses);
    for (std::size_t i = 0; i < chunk.size(); ++i)
      use(chunk[i], logits[i], masses[i]);
    tokens = tokens.subspan(chunk.size());
  }
}

void RankedMasses::gather(int band, const Place& before) {
  const Band distances{kEdges[band], kEdges[band + 1]};
  BandTokens& in_band = bands_[band];
  int32_t found[kChunk];
  for (std::size_t at = 0; at < logits_.size(); at += kChunk) {
    const auto chunk = logits_.subspan(at, std::min(kChunk, logits_.size() - at));
    const std::size_t count =
        row_kernels().gather(chunk.data(), chunk.size(), scale_, distances, found);
    for (std::size_t i = 0; i < count; ++i)
      in_band.tokens.push_back(static_cast<int32_t>(at) + found[i]);
  }
  in_band.end = before;
  in_band.end.count += in_band.tokens.size();
  weigh_each(in_band.tokens, [&](int32_t, double, uint64_t mass) { in_band.end.mass += mass; });
  ++gathered_;
}

/// The place of the mark among tokens that reach it, in ascending order.
Place RankedMasses::find_among(std::span<const int32_t> tokens, Place before, const Mark& mark)
    const {
  std::vector<int32_t> whole;
  std::vector<int32_t> part;
  for (int splits = 0; tokens.size() > kFew && splits < kMaxSplits; ++splits) {
    if (!split(tokens, mark, before, part)) break;
    std::swap(whole, part);
    tokens = whole;
  }
  return walk(tokens, before, mark);
}

/// Splits tokens that reach the mark, and puts the part in which they do into `part` and the sums
/// before it into `before`. False when they cannot be split.
bool RankedMasses::split(
    std::span<const int32_t> tokens, const Mark& mark, Place& before, std::vector<int32_t>& part
) const {
  const Steps steps = steps_over(logits_, tokens);
  if (!std::isfinite(steps.per_logit)) return false;
  Place ends[kParts] = {};
  weigh_each(tokens, [&](int32_t, double logit, uint64_t mass) {
    Place& end = ends[steps.part_of(logit)];
    end.mass += mass;
    ++end.count;
  });
  int chosen = 0;
  for (;; ++chosen) {
    Place& end = ends[chosen];
    end.mass += before.mass;
    end.count += before.count;
    if (mark.is_reached_by(end)) break;
    before = end;
  }
  part.clear();
  for (const int32_t token : tokens) {
    if (steps.part_of(logits_[static_cast<std::size_t>(token)]) == chosen) part.push_back(token);
  }
  return true;
}

/// Goes through tokens in rank order until they reach the mark.
Place RankedMasses::walk(std::span<const int32_t> tokens, Place place, const Mark& mark) const {
  std::vector<std::pair<Ranked, uint64_t>> ranked;
  weigh_each(tokens, [&](int32_t token, double logit, uint64_t mass) {
    ranked.push_back({{logit, token}, mass});
  });
  const auto better = [](const auto& a, const auto& b) { return ranks_before(a.first, b.first); };
  // Equal logits, of which there can be many, stand in rank order already.
  if (!std::is_sorted(ranked.begin(), ranked.end(), better)) {
    std::sort(ranked.begin(), ranked.end(), better);
  }
  for (const auto& [token, mass] : ranked) {
    place = {token, place.mass + mass, place.count + 1};
    if (mark.is_reached_by(place)) break;
  }
  return place;
}

}  // namespace di::sampling
