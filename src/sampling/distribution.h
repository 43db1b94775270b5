// What a token is drawn from: a row of logits after every edit, cut by temperature, top-k, top-p
// and min-p.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sampling/params.h"
#include "sampling/ranked_masses.h"
#include "sampling/row_kernels.h"

namespace di::sampling {

/// The least logprob that is reported; that of a token which cannot be drawn.
constexpr double kLogprobFloor = -9999;

/// A token with its mass.
struct TokenMass {
  int32_t token = 0;
  uint64_t mass = 0;
};

/// One row's distribution. The cuts keep the best tokens: first top_k of them; of those the fewest
/// that reach top_p of their mass; of those the ones with min_p of the best one's mass.
class Distribution {
 public:
  /// `peak` is that of `logits`, which outlive this; when it is not usable, nothing can be drawn.
  Distribution(std::span<const double> logits, const Peak& peak, const SamplingParams& params);

  /// One that has a single token, `only`; or none, when that is not usable.
  explicit Distribution(const Peak& only) : peak_(only) {}

  /// Whether there is a token to draw. If not, nothing below but logprob() may be called.
  bool drawable() const { return peak_.usable; }

  /// The token at `share` of the kept mass, 0 ≤ share < 1, in rank order; the best one at
  /// temperature 0.
  int32_t token_at(double share);

  /// ln of the probability that `token` is drawn, kLogprobFloor when it is not or hardly ever.
  double logprob(int32_t token);

  /// The whole mass, of which mass_of_token() / mass() is a token's probability.
  uint64_t mass() const { return masses_ ? kept_ : 1; }

  /// The mass of `token`, 0 when it is not drawn.
  uint64_t mass_of_token(int32_t token);

  /// The `count` best tokens that can be drawn, or fewer, in rank order; at least one.
  std::vector<TokenMass> best(int64_t count);

  /// The token at `share` of the mass that is left without `tokens`, 0 ≤ share < 1, in rank order;
  /// there is some.
  int32_t token_outside(std::span<const int32_t> tokens, double share);

 private:
  bool is_cut(int32_t token);

  std::span<const double> logits_;
  Peak peak_;
  MassScale scale_;
  std::optional<RankedMasses> masses_;  ///< none: only the best token can be drawn, or nothing
  uint64_t kept_ = 0;                   ///< mass that the cuts leave
  std::optional<Ranked> last_;          ///< the last kept token, once it is asked for
};

}  // namespace di::sampling
