// What the ways to multiply FP8 weights share. For the files in avx2/, avx512/, ... only.
#pragma once

#include <cstring>

#include "ops/cpu/kernels.h"

namespace di::ops::cpu {
namespace {

inline constexpr int kFp8BlockBytes = kTileRows * 32;

/// The scale of a block of 32 columns, which all rows of a tile share, as fp32; 2^-127 is a
/// subnormal.
inline float fp8_scale(const TileArgs& args, int64_t block) {
  const uint8_t code = reinterpret_cast<const uint8_t*>(args.tile)[args.cols * kTileRows + block];
  const uint32_t bits = code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Whether a weight of the block is no multiple of 2^-6 before scaling (layout.h).
inline bool fp8_has_rest(const TileArgs& args, int64_t block) {
  return args.tile[args.cols * kTileRows + args.cols / 32 + block] != std::byte{0};
}

/// Adds a block to a row's sums: rounded exact sum, then activation scale, then weight scale.
template <class V>
__attribute__((always_inline)) inline void add_block(
    float* out, typename V::F rounded, float x_scale, float w_scale
) {
  const auto scaled = V::mul_f(rounded, V::broadcast_f(x_scale));
  V::store(out, V::add_f(V::load(out), V::mul_f(scaled, V::broadcast_f(w_scale))));
}

template <class V>
inline void clear_sums(const TileArgs& args) {
  for (int i = 0; i < args.num_rows * kTileRows; i += V::kLanes)
    V::store(args.out + i, V::zero_f());
}

}  // namespace
}  // namespace di::ops::cpu
