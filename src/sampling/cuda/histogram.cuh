// Counts and masses of bundles of tokens, by which a place in a row's ranking is looked for.
#pragma once

#include <cstdint>

#include "sampling/cuda/row.cuh"

namespace di::sampling::cuda {

inline constexpr int kBins = 2048;  ///< of a histogram

/// Equal steps of the logit from the best one down; the last one has no end.
struct Steps {
  double top = 0;
  double per_logit = 0;

  __device__ int of(double logit) const {
    const double at = (top - logit) * per_logit;
    return at < kBins - 1 ? static_cast<int>(at) : kBins - 1;
  }
};

/// Tokens of one step, or such whose ranks begin with the same bits; and the sums of what ranks
/// before them.
struct Bundle {
  int step = -1;  ///< of `steps`; −1: the prefix decides
  Steps steps;
  uint64_t prefix = 0;  ///< rank >> shift
  int shift = 0;
  uint64_t count = 0;
  uint64_t count_before = 0;
  uint64_t mass_before = 0;

  __device__ bool holds(double logit) const {
    return step >= 0 ? steps.of(logit) == step : rank_of(logit) >> shift == prefix;
  }
  __device__ bool holds_or_follows(double logit) const {
    return step >= 0 ? steps.of(logit) <= step : rank_of(logit) >> shift <= prefix;
  }
};

/// Counts and masses of bins; a mass, below 2^46, in three parts, whose sums over a part of a row
/// stay below 2^32, since the device adds 32 bits at once.
struct Histogram {
  static constexpr int kPartBits = 16;
  uint32_t counts[kBins];
  uint32_t parts[3][kBins];

  __device__ void clear() {
    for (int bin = threadIdx.x; bin < kBins; bin += kThreads) {
      counts[bin] = 0;
      for (int part = 0; part < 3; ++part)
        parts[part][bin] = 0;
    }
  }
  __device__ void add(int bin, uint64_t mass) {
    atomicAdd(&counts[bin], 1u);
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      const auto value = static_cast<uint32_t>(mass >> part * kPartBits & 0xffff);
      if (value != 0) atomicAdd(&parts[part][bin], value);
    }
  }
  __device__ uint64_t mass(int bin) const {
    return parts[0][bin] + (uint64_t{parts[1][bin]} << kPartBits) +
           (uint64_t{parts[2][bin]} << 2 * kPartBits);
  }
};

}  // namespace di::sampling::cuda
