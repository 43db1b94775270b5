// Eight bf16 values, 16 bytes, are what a thread of a row kernel moves at a time: unpacking,
// packing, their Q8 codes; and sums in double over the threads that share a row.
#pragma once

#include <cstdint>

#include "ops/cuda/number_formats.cuh"

namespace di::ops::cuda {

inline constexpr int kVector = 8;  ///< bf16 values in 16 bytes

__device__ inline float low_float(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ inline float high_float(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

/// Two fp32 rounded to bf16, `low` first in memory; NaN becomes the one NaN of the instruction.
__device__ inline uint32_t round_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ inline void unpack(const uint4& vector, float (&x)[kVector]) {
  const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = low_float(words[i]);
    x[2 * i + 1] = high_float(words[i]);
  }
}

__device__ inline uint4 pack(const float (&x)[kVector]) {
  return {
      round_pair(x[0], x[1]),
      round_pair(x[2], x[3]),
      round_pair(x[4], x[5]),
      round_pair(x[6], x[7])};
}

__device__ inline uint4 load_vector(const bf16* p) {
  return *reinterpret_cast<const uint4*>(p);
}
__device__ inline void store_vector(bf16* p, const uint4& vector) {
  *reinterpret_cast<uint4*>(p) = vector;
}

/// Records of small models have odd sizes: whole words only where they are aligned.
template <int kWords>
__device__ inline void store_words(uint8_t* to, const uint32_t (&words)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if (reinterpret_cast<uintptr_t>(to) % 4 == 0) {
      *reinterpret_cast<uint32_t*>(to + 4 * i) = words[i];
    } else {
      for (int byte = 0; byte < 4; ++byte)
        to[4 * i + byte] = static_cast<uint8_t>(words[i] >> (8 * byte));
    }
  }
}

/// Q8 of a group of 32 that lies in four neighbouring lanes, eight values each, in order.
struct Q8Vector {
  uint2 codes;    ///< of this lane's values
  uint8_t scale;  ///< the group's
};

/// What values are multiplied by for their codes. Dividing by the scale is a product here: powers
/// of two are exact.
__device__ inline float q8_inverse(uint8_t scale) {
  return scale == 255 ? __uint_as_float(0x7fc00000u) : __uint_as_float((254u - scale) << 23);
}
/// Two codes, the first in the lower byte.
__device__ inline uint32_t q8_codes(float a, float b, float inverse) {
  return __nv_cvt_float2_to_fp8x2({a * inverse, b * inverse}, __NV_SATFINITE, __NV_E4M3);
}

/// All lanes of the warp call it.
__device__ inline Q8Vector quantize_q8(const float (&x)[kVector]) {
  float amax = 0;
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    amax = fmaxf(amax, fabsf(x[i]));
  amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, 1));
  amax = fmaxf(amax, __shfl_xor_sync(0xffffffffu, amax, 2));
  const uint8_t scale = q8_scale(amax);
  const float inverse = q8_inverse(scale);
  uint32_t halves[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    halves[i] = q8_codes(x[2 * i], x[2 * i + 1], inverse);
  return {{halves[0] | halves[1] << 16, halves[2] | halves[3] << 16}, scale};
}

/// Sum over the warp, the same in every lane; the order is that of the lanes' numbers alone.
__device__ inline double sum_over_warp(double x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

/// Sums over the kThreads threads of the block, or of the warp when that is what shares a row; the
/// same in every thread. `scratch` is shared memory for kCount · kThreads / 32 doubles.
template <int kThreads, int kCount>
__device__ inline void sum_over_row(double (&x)[kCount], double* scratch) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    x[i] = sum_over_warp(x[i]);
  if constexpr (kThreads > 32) {
    constexpr int kWarps = kThreads / 32;
    if (threadIdx.x % 32 == 0) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        scratch[i * kWarps + threadIdx.x / 32] = x[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      x[i] = 0;
      for (int warp = 0; warp < kWarps; ++warp)
        x[i] += scratch[i * kWarps + warp];
    }
  }
}

}  // namespace di::ops::cuda
