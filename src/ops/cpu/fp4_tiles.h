// FP4 weights times 8-bit activation digits, written once over a vector type V. For the files in
// avx2/, avx512/, ... only: all is in an unnamed namespace, so that each keeps its own version.
//
// A doubled weight plus 12 is an unsigned byte 0 ... 24 and meets signed digits, so that a block of
// 32 columns ends as one exact int32 for each plane. Lanes of 32 bits are weight rows; a lane's
// four bytes are four columns, and no sum ever crosses lanes.
//
// V has: I (integers) and F (floats) of kLanes 32-bit lanes; Pair decode_fp4(codes), columns 0 ...
// 3 and 4 ... 7 of kLanes rows; dot(sum, weights, digits), which adds four products in every lane;
// widen<p>(sum), the int32 sum times 2^(p · digit bits); row_scales, to_float and the usual
// arithmetic.
#pragma once

#include <cstring>

#include "ops/cpu/kernels.h"

namespace di::ops::cpu {
namespace {

inline constexpr int kBlockCodeBytes = kTileRows * 16;

/// The scales behind the codes of an FP4 tile.
inline const uint8_t* fp4_scales(const TileArgs& args) {
  return reinterpret_cast<const uint8_t*>(args.tile) + args.cols / 32 * kBlockCodeBytes;
}

/// Rounds the exact sum, then activation scale, then weight scale.
template <class V>
__attribute__((always_inline)) inline typename V::F finish_block(
    typename V::I exact, const DigitBlock& x, typename V::F scales
) {
  const auto rounded = V::to_float(V::add_i(exact, V::broadcast_i(x.offset)));
  return V::mul_f(V::mul_f(rounded, V::broadcast_f(x.scale)), scales);
}

/// The planes' sums as one exact integer.
template <class V, int kPlanes>
__attribute__((always_inline)) inline typename V::I join_planes(const typename V::I (&sums)[kPlanes]
) {
  auto exact = V::add_i(V::template widen<0>(sums[0]), V::template widen<1>(sums[1]));
  if constexpr (kPlanes == 3) exact = V::add_i(exact, V::template widen<2>(sums[2]));
  return exact;
}

/// One activation row and the whole tile: parts of it share each broadcast of digits.
template <class V>
struct Fp4OneRow {
  static constexpr int kParts = kTileRows / V::kLanes;
  typename V::F sum[kParts];

  template <int kPlanes>
  __attribute__((always_inline)) void block(
      const std::byte* codes, const uint8_t* scales, const DigitBlock& x
  ) {
    typename V::I sums[kParts][kPlanes];
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
#pragma GCC unroll 4
      for (int p = 0; p < kPlanes; ++p)
        sums[part][p] = V::zero_i();
    }
#pragma GCC unroll 4
    for (int group = 0; group < 4; ++group) {
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        const auto w = V::decode_fp4(codes + group * 64 + part * V::kLanes * 4);
#pragma GCC unroll 4
        for (int p = 0; p < kPlanes; ++p) {
          const int8_t* digits = x.digits[p] + group * 8;
          sums[part][p] = V::dot(sums[part][p], w.first, digits);
          sums[part][p] = V::dot(sums[part][p], w.second, digits + 4);
        }
      }
    }
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      const auto w_scales = V::row_scales(scales + part * V::kLanes);
      const auto exact = join_planes<V, kPlanes>(sums[part]);
      sum[part] = V::add_f(sum[part], finish_block<V>(exact, x, w_scales));
    }
  }

  static void run(const TileArgs& args) {
    Fp4OneRow self;
    for (auto& s : self.sum)
      s = V::zero_f();
    const auto* x = reinterpret_cast<const DigitBlock*>(args.rows[0]);
    const uint8_t* scales = fp4_scales(args);
    for (int64_t b = 0; b < args.cols / 32; ++b) {
      const std::byte* codes = args.tile + b * kBlockCodeBytes;
      if (x[b].planes == 2) {
        self.template block<2>(codes, scales + b * kTileRows, x[b]);
      } else {
        self.template block<3>(codes, scales + b * kTileRows, x[b]);
      }
    }
    for (int part = 0; part < kParts; ++part)
      V::store(args.out + part * V::kLanes, self.sum[part]);
  }
};

/// Several activation rows share the decoded weights of a block.
template <class V>
struct Fp4Rows {
  using I = typename V::I;

  __attribute__((always_inline)) static I plane(const I (&w)[8], const int8_t* digits) {
    I sum = V::zero_i();
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
      sum = V::dot(sum, w[i], digits + 4 * i);
    return sum;
  }

  __attribute__((always_inline)) static I product(const I (&w)[8], const DigitBlock& x) {
    const I coarse[2] = {plane(w, x.digits[0]), plane(w, x.digits[1])};
    if (x.planes == 2) return join_planes<V, 2>(coarse);
    const I fine[3] = {coarse[0], coarse[1], plane(w, x.digits[2])};
    return join_planes<V, 3>(fine);
  }

  static void block(const TileArgs& args, int64_t b, int lane) {
    const std::byte* codes = args.tile + b * kBlockCodeBytes + lane * 4;
    I w[8];
#pragma GCC unroll 4
    for (int group = 0; group < 4; ++group) {
      const auto pair = V::decode_fp4(codes + group * 64);
      w[2 * group] = pair.first;
      w[2 * group + 1] = pair.second;
    }
    const auto scales = V::row_scales(fp4_scales(args) + b * kTileRows + lane);
    for (int i = 0; i < args.num_rows; ++i) {
      const DigitBlock& x = reinterpret_cast<const DigitBlock*>(args.rows[i])[b];
      float* out = args.out + i * kTileRows + lane;
      V::store(out, V::add_f(V::load(out), finish_block<V>(product(w, x), x, scales)));
    }
  }

  static void run(const TileArgs& args) {
    for (int i = 0; i < args.num_rows * kTileRows; i += V::kLanes)
      V::store(args.out + i, V::zero_f());
    for (int64_t b = 0; b < args.cols / 32; ++b) {
      for (int lane = 0; lane < kTileRows; lane += V::kLanes)
        block(args, b, lane);
    }
  }
};

template <class V>
void fp4_kernel(const TileArgs& args) {
  args.num_rows == 1 ? Fp4OneRow<V>::run(args) : Fp4Rows<V>::run(args);
}

}  // namespace
}  // namespace di::ops::cpu
