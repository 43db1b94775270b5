// The part of numpy's default_rng that Engram's multipliers were drawn with.
#pragma once

#include <cstdint>

namespace di::model {

/// numpy.random.default_rng(seed) for a 32-bit seed: SeedSequence feeding PCG64 (XSL-RR 128/64).
class NumpyRandom {
 public:
  explicit NumpyRandom(uint32_t seed);

  /// Generator.integers(0, bound) for bound > 2^32: Lemire's method on 64-bit draws.
  uint64_t below(uint64_t bound);

 private:
  __extension__ using uint128 = unsigned __int128;

  uint64_t next();
  void step() { state_ = state_ * kMultiplier + increment_; }

  static constexpr uint128 kMultiplier =
      uint128{0x2360ed051fc65da4u} << 64 | uint128{0x4385df649fccf645u};

  uint128 state_ = 0;
  uint128 increment_ = 0;
};

}  // namespace di::model
