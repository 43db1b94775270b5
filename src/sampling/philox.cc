#include "sampling/philox.h"

namespace di::sampling {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53u;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u;
constexpr uint32_t kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;

uint64_t random_bits(uint64_t seed, int64_t position, Stream stream, uint32_t index) {
  const auto low = [](uint64_t word) { return static_cast<uint32_t>(word); };
  const auto high = [](uint64_t word) { return static_cast<uint32_t>(word >> 32); };
  const auto at = static_cast<uint64_t>(position);
  const std::array<uint32_t, 4> words = philox4x32(
      {low(at), high(at), static_cast<uint32_t>(stream), index}, {low(seed), high(seed)}
  );
  return uint64_t{words[1]} << 32 | words[0];
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
        static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
        static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double uniform(uint64_t seed, int64_t position, Stream stream, uint32_t index) {
  return static_cast<double>(random_bits(seed, position, stream, index) >> 11) * 0x1p-53;
}

uint64_t derived_seed(uint64_t seed, int64_t index, Stream stream) {
  return random_bits(seed, index, stream, 0);
}

}  // namespace di::sampling
