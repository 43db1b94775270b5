// exp as the canonical scalars have it, a register at a time. For kernel files only; include after
// the lanes.h of the instruction set.
//
// The polynomial is good to a few units of a double. An fp32 result can differ from that of the
// libm call only where the double lies that close to a midpoint of two fp32; such lanes, one in
// millions, are done again by libm, and so are those outside the comfortable range.
#pragma once

#include <cmath>

namespace di::ops::cpu {
namespace {

/// exp(x) in double for |x| ≤ 700, to a few units.
template <class L>
inline typename L::Doubles exp_double(typename L::Doubles x) {
  constexpr double kShift = 0x1.8p52;
  constexpr double kInverseFactorials[] = {
      1.0 / 6227020800,
      1.0 / 479001600,
      1.0 / 39916800,
      1.0 / 3628800,
      1.0 / 362880,
      1.0 / 40320,
      1.0 / 5040,
      1.0 / 720,
      1.0 / 120,
      1.0 / 24,
      1.0 / 6,
      0.5,
      1.0,
      1.0};
  const auto shifted = L::fma(x, L::broadcast(0x1.71547652b82fep0), L::broadcast(kShift));
  const auto k = L::sub(shifted, L::broadcast(kShift));
  auto r = L::fma(k, L::broadcast(-0x1.62e42fefa39efp-1), x);
  r = L::fma(k, L::broadcast(-0x1.abc9e3b39803fp-56), r);
  auto y = L::broadcast(kInverseFactorials[0]);
  for (int i = 1; i < 14; ++i)
    y = L::fma(y, r, L::broadcast(kInverseFactorials[i]));
  return L::scale_by_power(y, shifted);
}

/// exp_f32 of every lane.
template <class L>
inline typename L::Floats exp_lanes(typename L::Floats x) {
  const auto zero_below = L::broadcast(-104.0f);  // exp(-104) < 2^-150: rounds to zero
  const auto normal_from = L::broadcast(-87.0f);
  const auto normal_to = L::broadcast(88.0f);
  const auto wide = exp_double<L>(L::widen(x));
  auto y = L::zero_where_less(L::narrow(wide), x, zero_below);
  const unsigned doubtful =
      (L::near_midpoint(wide) | L::less(x, normal_from) | L::less(normal_to, x)) &
      ~L::less(x, zero_below);
  if (__builtin_expect(doubtful != 0, 0)) {
    float in[L::kCount];
    float out[L::kCount];
    L::store(in, x);
    L::store(out, y);
    for (int lane = 0; lane < L::kCount; ++lane) {
      if ((doubtful >> lane & 1) != 0) {
        out[lane] = static_cast<float>(std::exp(static_cast<double>(in[lane])));
      }
    }
    y = L::load(out);
  }
  return y;
}

}  // namespace
}  // namespace di::ops::cpu
