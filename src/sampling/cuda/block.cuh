// Reductions and scans over the threads of a CTA, in an order that never changes.
#pragma once

#include <cstdint>

namespace di::sampling::cuda {

inline constexpr int kThreads = 256;
inline constexpr int kWarps = kThreads / 32;
inline constexpr unsigned int kAllLanes = 0xffffffffu;

/// Shared memory of the functions below.
struct BlockScratch {
  uint64_t words[2][kWarps];
};

/// atomicAdd() for what is known to lie in shared memory, which is much faster.
__device__ inline int add_to_shared(int* counter, int value) {
  int before;
  asm volatile("atom.shared::cta.add.s32 %0, [%1], %2;"
               : "=r"(before)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(counter))), "r"(value)
               : "memory");
  return before;
}

/// Σ over the CTA, in every thread.
template <class T>
__device__ inline T block_sum(T x, BlockScratch& scratch) {
  static_assert(sizeof(T) == 8);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    x += __shfl_xor_sync(kAllLanes, x, distance);
  T* const warps = reinterpret_cast<T*>(scratch.words[0]);
  __syncthreads();
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
  __syncthreads();
  x = 0;
  for (int warp = 0; warp < kWarps; ++warp)
    x += warps[warp];
  return x;
}

/// Sums of the threads before this one; two numbers at a time.
__device__ inline void block_sums_before(uint64_t& a, uint64_t& b, BlockScratch& scratch) {
  const int lane = threadIdx.x % 32;
  const uint64_t own_a = a;
  const uint64_t own_b = b;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const uint64_t left_a = __shfl_up_sync(kAllLanes, a, distance);
    const uint64_t left_b = __shfl_up_sync(kAllLanes, b, distance);
    if (lane >= distance) {
      a += left_a;
      b += left_b;
    }
  }
  __syncthreads();
  if (lane == 31) {
    scratch.words[0][threadIdx.x / 32] = a;
    scratch.words[1][threadIdx.x / 32] = b;
  }
  __syncthreads();
  a -= own_a;
  b -= own_b;
  for (int warp = 0; warp < static_cast<int>(threadIdx.x / 32); ++warp) {
    a += scratch.words[0][warp];
    b += scratch.words[1][warp];
  }
}

}  // namespace di::sampling::cuda
