// SeededRandom: numbers for simulated traffic. The generator of the standard library gives the same
// numbers everywhere; its distributions do not, so those that traffic needs are written here.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

namespace di {

/// A stream of random numbers that its seed alone decides.
class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed) : engine_(seed) {}

  /// Each whole number from `low` to `high` alike.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }

  /// From [0, 1).
  double unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

  /// True once in `n` times.
  bool one_in(int64_t n) { return between(1, n) == 1; }

  /// Times between events that come at random, `mean` apart.
  double exponential(double mean) { return -mean * std::log1p(-unit()); }

  /// With mean 0 and spread 1.
  double normal() {
    const double radius = std::sqrt(-2 * std::log1p(-unit()));
    return radius * std::cos(2 * std::numbers::pi * unit());
  }

  /// exp of a normal number with the spread `sigma`; half of all are below `median`, and the mean
  /// is median · exp(sigma² / 2).
  double log_normal(double median, double sigma) { return median * std::exp(sigma * normal()); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace di
