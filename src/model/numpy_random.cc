// Constants and steps: numpy's SeedSequence (after O'Neill's seed_seq_fe) and the PCG paper.
#include "model/numpy_random.h"

#include <array>
#include <bit>

namespace di::model {
namespace {

using Pool = std::array<uint32_t, 4>;

constexpr int kShift = 16;

/// One hash lane whose constant moves on with every value.
struct HashLane {
  uint32_t constant;
  uint32_t multiplier;

  uint32_t operator()(uint32_t value) {
    value ^= constant;
    constant *= multiplier;
    value *= constant;
    return value ^ value >> kShift;
  }
};

uint32_t mix(uint32_t x, uint32_t y) {
  const uint32_t mixed = 0xca01f9ddu * x - 0x4973f715u * y;
  return mixed ^ mixed >> kShift;
}

Pool entropy_pool(uint32_t seed) {
  HashLane lane{0x43b0d7e5u, 0x931e8875u};
  Pool pool{};
  for (std::size_t i = 0; i < pool.size(); ++i)
    pool[i] = lane(i == 0 ? seed : 0);
  for (std::size_t from = 0; from < pool.size(); ++from) {
    for (std::size_t to = 0; to < pool.size(); ++to) {
      if (from != to) pool[to] = mix(pool[to], lane(pool[from]));
    }
  }
  return pool;
}

}  // namespace

NumpyRandom::NumpyRandom(uint32_t seed) {
  const Pool pool = entropy_pool(seed);
  HashLane lane{0x8b51f9ddu, 0x58f38dedu};
  std::array<uint64_t, 4> words{};
  for (std::size_t i = 0; i < words.size(); ++i) {
    const uint64_t low = lane(pool[2 * i % pool.size()]);
    const uint64_t high = lane(pool[(2 * i + 1) % pool.size()]);
    words[i] = high << 32 | low;
  }
  increment_ = (uint128{words[2]} << 64 | words[3]) << 1 | 1;
  step();
  state_ += uint128{words[0]} << 64 | words[1];
  step();
}

uint64_t NumpyRandom::next() {
  step();
  const auto high = static_cast<uint64_t>(state_ >> 64);
  const auto low = static_cast<uint64_t>(state_);
  return std::rotr(high ^ low, static_cast<int>(high >> 58));
}

uint64_t NumpyRandom::below(uint64_t bound) {
  uint128 product = uint128{next()} * bound;
  const uint64_t threshold = (0 - bound) % bound;
  while (static_cast<uint64_t>(product) < threshold)
    product = uint128{next()} * bound;
  return static_cast<uint64_t>(product >> 64);
}

}  // namespace di::model
