// mass_of() for most tokens in half the time.
#pragma once

#include <cstdint>

#include "sampling/fixed_exp.h"

namespace di::sampling::cuda {

/// mass_of(), once in the program: it is long, and where it matters it is rare.
static __device__ __noinline__ uint64_t exact_mass(double x) {
  return mass_of(x);
}

/// mass_of(x) for x ≥ 0, the same number. exp is taken to 36 bits with fused products first; where
/// that cannot tell to which whole number the mass rounds, and for the largest masses, mass_of()
/// decides.
__device__ inline uint64_t quick_mass(double x) {
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
  if (!(x < 32)) return 0;
  const double shifted = fma(x, -0x1.71547652b82fep0, kShift);
  const double power = shifted - kShift;
  const double rest = fma(power, -kLog2, -x);
  double value = kInverseFactorials[0];
#pragma unroll
  for (int i = 1; i < 10; ++i)
    value = fma(value, rest, kInverseFactorials[i]);
  const int exponent = (__double2loint(shifted) + 45) << 20;
  const double mass = __hiloint2double(__double2hiint(value) + exponent, __double2loint(value));
  const double rounded = mass + 0x1p52;
  const double off = fabs(mass - (rounded - 0x1p52));
  if (fma(mass, kError, off) < 0.4999) {
    return static_cast<uint64_t>(__double_as_longlong(rounded)) & 0x000F'FFFF'FFFF'FFFF;
  }
  return exact_mass(x);
}

}  // namespace di::sampling::cuda
