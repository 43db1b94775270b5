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

/// A mark that a running sum is to reach.
struct Mark {
  Measure measure = Measure::kMass;
  uint64_t value = 1;  ///< not 0

  bool is_reached_by(const Place& place) const {
    return (measure == Measure::kMass ? place.mass : place.count) >= value;
  }
};

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

  /// The first token, in rank order, at which the mark is reached. When it is at none, the sums of
  /// all; `token` is none of them then.
  Place find(const Mark& mark);

 private:
  static constexpr int kBands = 4;

  /// The tokens of a band in ascending order, and the running sums at its end.
  struct BandTokens {
    std::vector<int32_t> tokens;
    Place end;
  };

  template <typename Use>
  void weigh_each(std::span<const int32_t> tokens, Use use) const;
  void gather(int band, const Place& before);
  Place find_among(std::span<const int32_t> tokens, Place before, const Mark& mark) const;
  bool split(
      std::span<const int32_t> tokens, const Mark& mark, Place& before, std::vector<int32_t>& part
  ) const;
  Place walk(std::span<const int32_t> tokens, Place place, const Mark& mark) const;

  std::span<const double> logits_;
  MassScale scale_;
  Masses masses_;
  int gathered_ = 0;  ///< bands, the first ones
  BandTokens bands_[kBands];
};

}  // namespace di::sampling
