// exp for x ≤ 0 as a fixed chain of products and sums, so that every compiler, instruction set and
// vector width gives the same bits, and a loop over a row vectorises. libm promises neither.
// Always inlined, as these are compiled for several instruction sets (see row_kernels.h), and
// constexpr, as the device's compiler takes such functions too (cuda/).
#pragma once

#include <cstdint>

namespace di::sampling {

/// exp(−x) for x ≥ 0, to two units of a double; x above 700 counts as 700.
[[gnu::always_inline]] constexpr double exp_of_minus(double x) {
  constexpr double kShift = 0x1.8p52;            // rounds to an integer, held in the low bits
  constexpr double kLog2High = 0x1.62e42feep-1;  // its product with an integer below 2^20 is exact
  constexpr double kLog2Low = 0x1.a39ef35793c76p-33;
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
  const double y = -(x < 700 ? x : 700);
  const double shifted = y * 0x1.71547652b82fep0 + kShift;
  const double power = shifted - kShift;
  const double rest = y - power * kLog2High - power * kLog2Low;
  double value = kInverseFactorials[0];
#ifdef __CUDACC__
#pragma unroll
#else
#pragma GCC unroll 14
#endif
  for (int i = 1; i < 14; ++i)
    value = value * rest + kInverseFactorials[i];
  const uint64_t exponent = __builtin_bit_cast(uint64_t, shifted) << 52;
  return __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, value) + exponent);
}

/// The mass of the best token; see mass_of().
constexpr double kUnitMass = 0x1p45;

/// exp(−x) for x ≥ 0 in units of 2^−45, rounded: a token's share of the best one's probability.
/// Sums of up to 2^18 of these are exact in 64 bits, and so do not depend on their order.
[[gnu::always_inline]] constexpr uint64_t mass_of(double x) {
  constexpr double kShift = 0x1p52;
  return __builtin_bit_cast(uint64_t, exp_of_minus(x) * kUnitMass + kShift) & 0x000F'FFFF'FFFF'FFFF;
}

}  // namespace di::sampling
