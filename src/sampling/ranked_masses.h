// The tokens of a row in their order, each with its mass, without sorting the row.
//
// Masses are whole numbers (fixed_exp.h), so running sums are exact and every way to find the token
// at which one passes a mark gives what a full sort would give.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/ranking.h"
#include "sampling/row_kernels.h"

namespace di::sampling {

/// A token and the running sums in rank order, the token included.
struct Place {
  Ranked token;
  uint64_t mass = 0;
  uint64_t count = 0;  ///< tokens
};

/// Which running sum.
enum class Measure { kMass, kCount };

/// Masses of one row at one temperature.
///
/// Tokens so far below the best one that they have no mass are never found. The others are looked
/// at band by band, from the best down, no further than needed.
class RankedMasses {
 public:
  /// `logits` outlives this and its best entry is `scale.top`. Tokens with at least `min_p` of the
  /// best one's mass make up above_floor().
  RankedMasses(std::span<const double> logits, const MassScale& scale, double min_p);

  uint64_t all() const { return masses_.all; }
  uint64_t above_floor() const { return masses_.above_floor; }

  /// The first token, in rank order, at which the running sum is at least `mark`, which is not 0.
  /// When no token is, the sums of all; `token` is none of them then.
  Place find(uint64_t mark, Measure measure);

 private:
  static constexpr int kBands = 4;

  struct Candidate {
    Ranked token;
    uint64_t mass = 0;
  };

  static Place add(Place place, std::span<const Candidate> candidates);
  void gather(int band);
  Place find_in_band(Place before, uint64_t mark, Measure measure);

  std::span<const double> logits_;
  MassScale scale_;
  Masses masses_;
  int known_bands_ = 0;                ///< the first ones, whose sums are known
  Place sums_[kBands] = {};            ///< running ones, at the end of each known band
  int gathered_ = -1;                  ///< the band of `candidates_`
  std::vector<Candidate> candidates_;  ///< in any order
};

}  // namespace di::sampling
