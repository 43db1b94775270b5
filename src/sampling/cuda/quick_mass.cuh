// mass_of() for most tokens in half the time.
#pragma once

#include <cstdint>

#include "sampling/fixed_exp.h"

namespace di::sampling::cuda {

/// mass_of(), once in the program: it is long, and where it matters it is rare.
static __device__ __noinline__ uint64_t exact_mass(double x) {
  return mass_of(x);
}

/// A mass, and whether it is the one of mass_of().
struct QuickMass {
  uint64_t mass;
  bool is_certain;
};

/// mass_of(x) for x ≥ 0 with exp to 36 bits, by fused products and without a branch. It is not
/// certain where that cannot tell to which whole number the mass rounds, and for the largest
/// masses.
__device__ inline QuickMass quick_mass(double x) {
  constexpr double kShift = 0x1.8p52;
  constexpr double kLog2 = 0x1.62e42fefa39efp-1;
  constexpr double kError = 0x1p-35;  // of the mass, with room to spare
  constexpr double kInverseFactorials[] = {
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
  const double y = x < 33 ? x : 33;  // from 32 on the mass is 0
  const double shifted = fma(y, -0x1.71547652b82fep0, kShift);
  const double power = shifted - kShift;
  const double rest = fma(power, -kLog2, -y);
  double value = kInverseFactorials[0];
#pragma unroll
  for (int i = 1; i < 10; ++i)
    value = fma(value, rest, kInverseFactorials[i]);
  const int exponent = (__double2loint(shifted) + 45) << 20;
  const double mass = __hiloint2double(__double2hiint(value) + exponent, __double2loint(value));
  const double rounded = mass + 0x1p52;
  const double off = fabs(mass - (rounded - 0x1p52));
  const auto bits = static_cast<uint64_t>(__double_as_longlong(rounded));
  return {bits & 0x000F'FFFF'FFFF'FFFF, fma(mass, kError, off) < 0.4999};
}

/// Four masses; the exact exp is asked where it must be.
__device__ inline void four_masses(const double (&x)[4], uint64_t (&masses)[4]) {
  bool is_certain[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const QuickMass quick = quick_mass(x[k]);
    masses[k] = quick.mass;
    is_certain[k] = quick.is_certain;
  }
  if (is_certain[0] && is_certain[1] && is_certain[2] && is_certain[3]) return;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (!is_certain[k]) masses[k] = exact_mass(x[k]);
  }
}

}  // namespace di::sampling::cuda
