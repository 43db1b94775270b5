// The k-th best of the order keys that a CTA holds. Keys are counted one by one by their distance
// from the largest, which tells the k-th in one pass wherever it lies within 2,048 keys of that
// one, sixteen binary orders of magnitude; only further below do a coarse and a fine pass follow.
// Every count is an integer, so the order of atomics does not matter.
#pragma once

#include "ops/cuda/index_call.cuh"
#include "ops/cuda/pipeline.cuh"

namespace di::ops::cuda {

/// A CTA of so many threads that selects.
template <int kThreadCount>
struct Selector {
  static constexpr int kThreads = kThreadCount;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kBins = 2048;
  static constexpr int kOwnBins = kBins / kThreads;  // of a thread
  static constexpr int kOwnWords = kOwnBins / 4;     // of 16 bytes
  static constexpr int kCoarseShift = 5;             // all keys fit into coarse bins
  static_assert(kBins << kCoarseShift == 1 << 16 && kOwnWords * 4 * kThreads == kBins);

  // What its threads share.
  uint4 counts[kBins / 4];  // of the bins; zero between passes
  uint32_t warp_sums[kWarps];
  uint32_t other_sums[kWarps];
  uint32_t bin;
  uint32_t before;
  uint32_t in_bin;
};

__device__ inline int own_thread() {
  return static_cast<int>(threadIdx.x);
}
__device__ inline int own_lane() {
  return own_thread() % 32;
}
__device__ inline int own_warp() {
  return own_thread() / 32;
}

/// Sum over the lanes before this one.
__device__ inline uint32_t sum_before_lane(uint32_t own) {
  uint32_t inclusive = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, inclusive, distance);
    if (own_lane() >= distance) inclusive += other;
  }
  return inclusive - own;
}

/// Exclusive sum over the threads before this one, and the sum over all. The CTA calls it; a
/// barrier must lie between two calls with the same `sums`.
struct Prefix {
  uint32_t before;
  uint32_t total;
};
template <int kWarps>
__device__ inline Prefix prefix_sum(uint32_t (&sums)[kWarps], uint32_t own) {
  const uint32_t before = sum_before_lane(own);
  if (own_lane() == 31) sums[own_warp()] = before + own;
  __syncthreads();
  const uint32_t sum = own_lane() < kWarps ? sums[own_lane()] : 0;
  const uint32_t warps_before = __reduce_add_sync(0xffffffffu, own_lane() < own_warp() ? sum : 0);
  return {warps_before + before, __reduce_add_sync(0xffffffffu, sum)};
}

/// The largest of all threads' numbers; the same holds.
template <int kWarps>
__device__ inline uint32_t largest(uint32_t (&most)[kWarps], uint32_t own) {
  const uint32_t of_warp = __reduce_max_sync(0xffffffffu, own);
  if (own_lane() == 0) most[own_warp()] = of_warp;
  __syncthreads();
  const uint32_t other = own_lane() < kWarps ? most[own_lane()] : 0;
  return __reduce_max_sync(0xffffffffu, other);
}

/// Adds one to a number in shared memory, if `wanted`, without a branch.
__device__ inline void count_one(uint32_t address, bool wanted) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n@p red.shared.add.u32 [%0], 1;\n}\n" ::"r"(address),
      "r"(static_cast<int>(wanted))
      : "memory"
  );
}

/// Bins of 2^shift keys each from `top` down to `low`; keys outside are in none.
struct Bins {
  uint32_t top;
  uint32_t low;
  int shift;

  template <int kThreads>
  __device__ void count(Selector<kThreads>& shared, uint32_t key) const {
    const uint32_t below = top - key;
    const uint32_t span = min(top - low + 1, uint32_t{Selector<kThreads>::kBins} << shift);
    count_one(shared_address(shared.counts) + (below >> shift) * 4, below < span);
  }
};

/// The first bin up to which at least `wanted` keys were counted.
struct Bin {
  uint32_t index;
  uint32_t before;  ///< keys in the bins before it
  uint32_t own;     ///< keys in it; 0: fewer than `wanted` were counted
};

/// Reads and clears the counts, which all threads have made.
template <int kThreads>
__device__ inline Bin find_bin(Selector<kThreads>& shared, uint32_t wanted) {
  constexpr int kWords = Selector<kThreads>::kOwnWords;
  __syncthreads();
  uint4 own[kWords];
  uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    uint4& four = shared.counts[own_thread() * kWords + i];
    own[i] = four;
    four = {};
    sum += own[i].x + own[i].y + own[i].z + own[i].w;
  }
  const Prefix prefix = prefix_sum(shared.warp_sums, sum);
  if (prefix.total < wanted) return {0, prefix.total, 0};
  uint32_t before = prefix.before;
  if (before < wanted && wanted <= before + sum) {
    const auto first = static_cast<uint32_t>(own_thread() * Selector<kThreads>::kOwnBins);
    const auto visit = [&](uint32_t bin, uint32_t count) {
      if (before < wanted && wanted <= before + count) {
        shared.bin = first + bin;
        shared.before = before;
        shared.in_bin = count;
      }
      before += count;
    };
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) {
      visit(4 * i, own[i].x);
      visit(4 * i + 1, own[i].y);
      visit(4 * i + 2, own[i].z);
      visit(4 * i + 3, own[i].w);
    }
  }
  __syncthreads();
  return {shared.bin, shared.before, shared.in_bin};
}

/// Keys above `key` are among the k best, and so are the first `ties` of those equal to it.
struct Threshold {
  uint32_t key;
  uint32_t ties;
};

/// The threshold of the k > 0 best keys from `low` > 0 to `top` that visit_all(count) counts. Of
/// fewer than k keys all are above it. The counts are zero before and after.
template <int kThreads, class VisitAll>
__device__ Threshold find_threshold(
    Selector<kThreads>& shared, uint32_t top, uint32_t low, uint32_t k, const VisitAll& visit_all
) {
  const auto find = [&](const Bins& bins, uint32_t wanted) {
    visit_all([&](uint32_t key) { bins.count(shared, key); });
    return find_bin(shared, wanted);
  };
  const Bin near = find({top, low, 0}, k);
  if (near.own != 0) return {top - near.index, k - near.before};
  if (top < Selector<kThreads>::kBins + low) return {0, 0};
  top -= Selector<kThreads>::kBins;
  uint32_t wanted = k - near.before;
  const Bin coarse = find({top, low, Selector<kThreads>::kCoarseShift}, wanted);
  if (coarse.own == 0) return {0, 0};
  top -= coarse.index << Selector<kThreads>::kCoarseShift;
  wanted -= coarse.before;
  const Bin fine = find({top, low, 0}, wanted);
  return {top - fine.index, wanted - fine.before};
}

}  // namespace di::ops::cuda
