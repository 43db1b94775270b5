// Cuts by the near tokens of a row alone. What the others weigh is known as a range, so every cut
// and mark becomes a range, too; if both ends of what it may be give the same token, so would exact
// sums. All functions are of the first CTA's threads together.
#pragma once

#include "sampling/cuda/near.cuh"

namespace di::sampling::cuda {

/// The mass that top_p asks for out of `kept`.
__device__ inline uint64_t share_mark(double share, uint64_t kept) {
  const auto mark = static_cast<uint64_t>(ceil(share * static_cast<double>(kept)));
  return mark < kept ? mark : kept;
}

/// The mass at which the token lies that `share` draws.
__device__ inline uint64_t drawn_mark(double share, uint64_t kept) {
  const auto below = static_cast<uint64_t>(share * static_cast<double>(kept));
  return (below < kept - 1 ? below : kept - 1) + 1;
}

/// The least mass that min_p leaves.
__device__ inline uint64_t floor_of(const SlotParams& params) {
  return static_cast<uint64_t>(ceil(params.min_p * kUnitMass));
}

/// What the cuts leave; `others` is the mass of all but near tokens.
__device__ inline Range kept_range(
    NearList& near, const SlotParams& params, const Range& others, const Range& above_floor
) {
  const uint64_t near_mass = near.mass();
  Range kept{near_mass + others.low, near_mass + others.high};
  if (params.top_k > near.size()) kept.low = near_mass;
  if (params.top_k > 0 && params.top_k <= near.size()) {
    kept.low = kept.high = near.find({true, static_cast<uint64_t>(params.top_k)}).mass;
  }
  if (params.top_p < 1) {
    const uint64_t low = share_mark(params.top_p, kept.low);
    const uint64_t high = share_mark(params.top_p, kept.high);
    kept.low = low <= near_mass ? near.find({.value = low}).mass : low;
    if (high <= near_mass) kept.high = near.find({.value = high}).mass;
  }
  if (params.min_p > 0) {
    kept = {min(kept.low, above_floor.low), min(kept.high, above_floor.high)};
  }
  return kept;
}

/// What min_p leaves. `cut`: the logit from which on tokens are near.
__device__ inline Range mass_above_floor(
    NearList& near, const SlotParams& params, const Scale& scale, float cut, const Range& others
) {
  const uint64_t floor = floor_of(params);
  const uint64_t above = near.mass_above(floor);
  return {above, scale.mass(cut) < floor ? above : above + others.high};
}

/// The token that `share` draws of the kept mass, or −1 when the near tokens do not tell.
__device__ inline int32_t drawn_token(NearList& near, double share, const Range& kept) {
  const uint64_t low = drawn_mark(share, kept.low);
  const uint64_t high = drawn_mark(share, kept.high);
  if (high > near.mass()) return -1;
  const int32_t token = near.find({.value = low}).token;
  return low == high || near.find({.value = high}).token == token ? token : -1;
}

}  // namespace di::sampling::cuda
