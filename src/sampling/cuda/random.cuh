// philox.h in device code: the same numbers.
#pragma once

#include <cstdint>

#include "sampling/philox.h"

namespace di::sampling::cuda {

/// uniform() of philox.h.
__device__ inline double uniform_of(
    uint64_t seed, int64_t position, Stream stream, uint32_t index = 0
) {
  uint32_t counter[4] = {
      static_cast<uint32_t>(position),
      static_cast<uint32_t>(static_cast<uint64_t>(position) >> 32),
      static_cast<uint32_t>(stream),
      index};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter[0] = static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0];
    counter[1] = static_cast<uint32_t>(product1);
    counter[2] = static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1];
    counter[3] = static_cast<uint32_t>(product0);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const uint64_t bits = uint64_t{counter[1]} << 32 | counter[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace di::sampling::cuda
