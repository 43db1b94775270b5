// Looking for a running sum, band by band; see ranked_masses.h.
#include "sampling/ranked_masses.h"

#include <algorithm>
#include <cmath>

#include "sampling/fixed_exp.h"

namespace di::sampling {
namespace {

/// Most rows of a model have some tens of tokens in the first band; the last ends where masses
/// round to zero.
constexpr double kEdges[] = {0, 4, 8, 16, 32};

/// How many entries of a row are gathered at a time.
constexpr std::size_t kChunk = 8192;

uint64_t measured(const Place& place, Measure measure) {
  return measure == Measure::kMass ? place.mass : place.count;
}

}  // namespace

RankedMasses::RankedMasses(std::span<const double> logits, const MassScale& scale, double min_p)
    : logits_(logits), scale_(scale) {
  const auto floor = static_cast<uint64_t>(std::ceil(min_p * kUnitMass));
  masses_ = row_kernels().weigh(logits.data(), logits.size(), scale, floor);
}

Place RankedMasses::add(Place place, std::span<const Candidate> candidates) {
  for (const Candidate& candidate : candidates)
    place.mass += candidate.mass;
  place.count += candidates.size();
  return place;
}

void RankedMasses::gather(int band) {
  if (gathered_ == band) return;
  gathered_ = band;
  candidates_.clear();
  const Band distances{kEdges[band], kEdges[band + 1]};
  int32_t found[kChunk];
  for (std::size_t at = 0; at < logits_.size(); at += kChunk) {
    const std::size_t size = std::min(kChunk, logits_.size() - at);
    const std::size_t count =
        row_kernels().gather(logits_.data() + at, size, scale_, distances, found);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t token = at + static_cast<std::size_t>(found[i]);
      const double logit = logits_[token];
      candidates_.push_back({{logit, static_cast<int32_t>(token)}, mass_of(scale_.distance(logit))}
      );
    }
  }
}

Place RankedMasses::find(uint64_t mark, Measure measure) {
  Place before;
  for (int band = 0; band < kBands; ++band) {
    if (band == known_bands_) {
      gather(band);
      sums_[band] = add(before, candidates_);
      ++known_bands_;
    }
    if (measured(sums_[band], measure) >= mark) {
      gather(band);
      return find_in_band(before, mark, measure);
    }
    before = sums_[band];
  }
  return before;
}

/// Halves the candidates, which reach the mark, until one is left.
Place RankedMasses::find_in_band(Place before, uint64_t mark, Measure measure) {
  std::span<Candidate> left(candidates_);
  while (left.size() > 1) {
    const auto middle = left.begin() + std::ssize(left) / 2;
    std::nth_element(left.begin(), middle, left.end(), [](const Candidate& a, const Candidate& b) {
      return ranks_before(a.token, b.token);
    });
    const std::span<Candidate> better(left.begin(), middle);
    const Place through = add(before, better);
    if (measured(through, measure) >= mark) {
      left = better;
    } else {
      before = through;
      left = {middle, left.end()};
    }
  }
  Place place = add(before, left);
  place.token = left[0].token;
  return place;
}

}  // namespace di::sampling
