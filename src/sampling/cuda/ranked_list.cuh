// A list of tokens in the shared memory of a row's first CTA, which sorts it and adds masses up;
// nothing here needs the other CTAs.
#pragma once

#include "sampling/cuda/quick_mass.cuh"
#include "sampling/cuda/row.cuh"

namespace di::sampling::cuda {

inline constexpr int kFew = 1024;     ///< tokens that are sorted instead of split
inline constexpr int kListed = 2048;  ///< tokens that a list has room for

/// How far a logit lies below the best one, as MassScale.
struct Scale {
  double top = 0;
  double inverse_temperature = 1;

  __device__ double distance(double logit) const { return (top - logit) * inverse_temperature; }
  __device__ uint64_t mass(double logit) const { return exact_mass(distance(logit)); }
};

/// The masses of four logits.
__device__ inline void four_masses(
    const Scale& scale, const double (&logits)[4], uint64_t (&masses)[4]
) {
  double distances[4];
#pragma unroll
  for (int k = 0; k < 4; ++k)
    distances[k] = scale.distance(logits[k]);
  four_masses(distances, masses);
}

/// A running sum that a place is to reach; see ranked_masses.h.
struct Mark {
  bool is_count = false;
  uint64_t value = 1;
};

/// A token in the ranking and the mass up to it, the token included.
struct Place {
  uint64_t rank = 0;
  int32_t token = 0;
  uint64_t mass = 0;
};

/// Whether a token ranks before another one.
__device__ inline bool is_before(uint64_t rank, int32_t token, uint64_t than, int32_t other) {
  return rank != than ? rank < than : token < other;
}

struct List {
  uint64_t ranks[kListed];
  int32_t tokens[kListed];

  /// Sorts the first `size`: few by counting those before each, else bitonically.
  __device__ __noinline__ void sort(int size) {
    if (size <= kThreads) return sort_few(size);
    int padded = 32;
    while (padded < size)
      padded *= 2;
    __syncthreads();
    for (int i = size + static_cast<int>(threadIdx.x); i < padded; i += kThreads) {
      ranks[i] = ~uint64_t{0};
      tokens[i] = 0x7fffffff;
    }
    __syncthreads();
    for (int run = 2; run <= padded; run *= 2) {
      for (int step = run / 2; step > 0; step /= 2) {
        for (int i = threadIdx.x; i < padded / 2; i += kThreads) {
          const int low = 2 * i - (i & (step - 1));
          exchange(low, low + step, (low & run) == 0);
        }
        __syncthreads();
      }
    }
  }

  /// Writes to sums[i] `before` and the masses up to token i of the sorted list of `size` tokens,
  /// kFew at most.
  __device__ __noinline__ void add_masses(
      int size, const Scale& scale, uint64_t before, uint64_t* sums, BlockScratch& scratch
  ) const {
    constexpr int kOwn = kFew / kThreads;
    uint64_t masses[kOwn] = {};
    uint64_t sum = 0;
    uint64_t unused = 0;
    const int first = static_cast<int>(threadIdx.x) * kOwn;
    for (int i = threadIdx.x; i < size; i += kThreads)
      sums[i] = scale.mass(logit_of(ranks[i]));
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (first + i < size) masses[i] = sums[first + i];
      sum += masses[i];
    }
    block_sums_before(sum, unused, scratch);
    sum += before;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      sum += masses[i];
      sums[first + i] = sum;
    }
    __syncthreads();
  }

 private:
  /// Puts two tokens in order, or with `ascends` false in the opposite one.
  __device__ void exchange(int low, int high, bool ascends) {
    const uint64_t a = ranks[low];
    const uint64_t b = ranks[high];
    const int32_t a_token = tokens[low];
    const int32_t b_token = tokens[high];
    if (is_before(b, b_token, a, a_token) != ascends) return;
    ranks[low] = b;
    ranks[high] = a;
    tokens[low] = b_token;
    tokens[high] = a_token;
  }

  /// A thread a token; all are different.
  __device__ void sort_few(int size) {
    const auto own = static_cast<int>(threadIdx.x);
    __syncthreads();
    const uint64_t rank = own < size ? ranks[own] : 0;
    const int32_t token = own < size ? tokens[own] : 0;
    int before = 0;
    if (own / 32 * 32 < size) {
#pragma unroll 4
      for (int i = 0; i < size; ++i)
        before += is_before(ranks[i], tokens[i], rank, token) ? 1 : 0;
    }
    __syncthreads();
    if (own < size) {
      ranks[before] = rank;
      tokens[before] = token;
    }
    __syncthreads();
  }
};

/// Where in the running sums of a sorted list of `size` tokens the mark is reached, or `size`.
__device__ inline int first_reaching(
    const uint64_t* sums, int size, uint64_t count_before, const Mark& mark, BlockScratch& scratch
) {
  if (mark.is_count) return static_cast<int>(mark.value - count_before) - 1;
  int below = 0;
  for (int i = threadIdx.x; i < size; i += kThreads)
    below += sums[i] < mark.value ? 1 : 0;
  return static_cast<int>(block_sum(static_cast<int64_t>(below), scratch));
}

}  // namespace di::sampling::cuda
