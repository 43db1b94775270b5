// Packed weights in shared memory to A fragments of the expert products (layouts: packing.h,
// wgmma.cuh), for either phase and either format.
//
// Phase 1 wants gate and up of the same inner channel in one thread. So a warpgroup's fragment is
// made of two packed tiles of the same 64 channels: its rows r are gate, its rows r + 8 up. Of the
// two matrix rows that a thread holds in a packed tile, warpgroup 0 takes the first and warpgroup 1
// the second. Phase 2 is plain: each warpgroup has a row tile of its own.
#pragma once

#include <cstdint>

#include "ops/cuda/expert_work.cuh"
#include "ops/cuda/unpack.cuh"

namespace di::ops::cuda {

/// Where a thread stands among the consumers.
struct ConsumerPlace {
  int thread;  ///< of the warpgroup
  int group;   ///< warpgroup, 0 or 1
  __device__ int warp() const { return thread / 32; }
  /// Pair of neighbouring matrix rows, or results, of a warp: 0 to 7.
  __device__ int row_pair() const { return thread % 32 / 4; }

  /// Of the calling thread. The compiler cannot know that it stays the same: otherwise it keeps
  /// everything that follows from it, for every instance of the main loop, in registers for good.
  static __device__ ConsumerPlace now() {
    int thread = 0;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return {thread % 128, thread / 128};
  }
};

/// Codes and multipliers of one column chunk that a thread needs: from() reads them from a block
/// pair in shared memory, get() gives the fragment of product k of the chunk, 0 to 3.
template <bool kFp8, bool kGateUp>
struct ExpertFragments;

template <>
struct ExpertFragments<false, true> {
  uint4 gate, up;
  uint32_t gate_scales, up_scales;
  int group;

  __device__ void from(const uint8_t* block, const ConsumerPlace& place) {
    constexpr int kSecond = WeightSlot<false>::kSecond;
    gate = reinterpret_cast<const uint4*>(block)[place.thread];
    up = reinterpret_cast<const uint4*>(block + kSecond)[place.thread];
    const int word = 8 * place.warp() + place.row_pair();
    group = place.group;
    gate_scales = reinterpret_cast<const uint32_t*>(block + 2048)[word] >> 8 * group;
    up_scales = reinterpret_cast<const uint32_t*>(block + kSecond + 2048)[word] >> 8 * group;
  }

  /// Registers p = 0 and 2, or for the second group 1 and 3, of a packed word.
  __device__ void half(uint32_t q, uint32_t scale, uint32_t& low, uint32_t& high) const {
    low = multiply_bf16x2(q << 3 * group & 0x81c081c0u, scale);
    const uint32_t magnitude = __funnelshift_l(q, q, group == 0 ? 6 : 29);
    high = multiply_bf16x2((q << (1 + group) & 0x80008000u) | (magnitude & 0x01c001c0u), scale);
  }

  __device__ void get(int k, uint32_t (&a)[4]) const {
    const uint32_t gates[4] = {gate.x, gate.y, gate.z, gate.w};
    const uint32_t ups[4] = {up.x, up.y, up.z, up.w};
    const int shift = 16 * (k / 2);
    half(gates[k], multiplier_pair(gate_scales >> shift & 255u), a[0], a[2]);
    half(ups[k], multiplier_pair(up_scales >> shift & 255u), a[1], a[3]);
  }
};

template <>
struct ExpertFragments<false, false> {
  uint4 codes;
  uint32_t scales;

  __device__ void from(const uint8_t* block, const ConsumerPlace& place) {
    block += place.group * WeightSlot<false>::kSecond;
    codes = reinterpret_cast<const uint4*>(block)[place.thread];
    scales = reinterpret_cast<const uint32_t*>(block + 2048)[8 * place.warp() + place.row_pair()];
  }

  __device__ void get(int k, uint32_t (&a)[4]) const {
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    const uint32_t pair = scales >> 16 * (k / 2);
    unpack_fp4(words[k], multiplier_pair(pair & 255u), multiplier_pair(pair >> 8 & 255u), a);
  }
};

template <>
struct ExpertFragments<true, true> {
  uint4 gate[2], up[2];
  uint32_t gate_scales, up_scales;
  int group;

  __device__ void from(const uint8_t* block, const ConsumerPlace& place) {
    constexpr int kSecond = WeightSlot<true>::kSecond;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      gate[i] = reinterpret_cast<const uint4*>(block)[128 * i + place.thread];
      up[i] = reinterpret_cast<const uint4*>(block + kSecond)[128 * i + place.thread];
    }
    const int row_half = place.warp() / 2;
    group = place.group;
    gate_scales = *reinterpret_cast<const uint32_t*>(block + 4096) >> 16 * row_half;
    up_scales = *reinterpret_cast<const uint32_t*>(block + kSecond + 4096) >> 16 * row_half;
  }

  /// The first, or for the second group the second, register of a packed word.
  __device__ uint32_t half(uint32_t q, uint32_t scale) const {
    q <<= 8 * group;
    return multiply_bf16x2((q & 0x80008000u) | (q >> 4 & 0x07f007f0u), scale);
  }

  __device__ void get(int k, uint32_t (&a)[4]) const {
    const uint4& g = gate[k / 2];
    const uint4& u = up[k / 2];
    const uint32_t gate_scale = multiplier_pair(gate_scales >> 8 * (k / 2) & 255u);
    const uint32_t up_scale = multiplier_pair(up_scales >> 8 * (k / 2) & 255u);
    a[0] = half(k % 2 == 0 ? g.x : g.z, gate_scale);
    a[2] = half(k % 2 == 0 ? g.y : g.w, gate_scale);
    a[1] = half(k % 2 == 0 ? u.x : u.z, up_scale);
    a[3] = half(k % 2 == 0 ? u.y : u.w, up_scale);
  }
};

template <>
struct ExpertFragments<true, false> {
  uint4 codes[2];
  uint32_t scales;

  __device__ void from(const uint8_t* block, const ConsumerPlace& place) {
    block += place.group * WeightSlot<true>::kSecond;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      codes[i] = reinterpret_cast<const uint4*>(block)[128 * i + place.thread];
    scales = *reinterpret_cast<const uint32_t*>(block + 4096) >> 16 * (place.warp() / 2);
  }

  __device__ void get(int k, uint32_t (&a)[4]) const {
    const uint4& v = codes[k / 2];
    const uint32_t scale = multiplier_pair(scales >> 8 * (k / 2) & 255u);
    unpack_fp8(k % 2 == 0 ? v.x : v.z, scale, a[0], a[1]);
    unpack_fp8(k % 2 == 0 ? v.y : v.w, scale, a[2], a[3]);
  }
};

}  // namespace di::ops::cuda
