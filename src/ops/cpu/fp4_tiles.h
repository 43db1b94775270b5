// FP4 weights times 8-bit activation digits, written once over a vector type V. For the files in
// avx2/, avx512/, ... only: all is in an unnamed namespace, so that each keeps its own version.
//
// A doubled weight plus 12 is an unsigned byte 0 ... 24 and meets signed digits, so that a block of
// 32 columns ends as one exact int32 for each plane. Lanes of 32 bits are weight rows; a lane's
// four bytes are four columns, and no sum ever crosses lanes.
//
// V has: kRows, how many activation rows to take at once; I (integers) and F (floats) of kLanes
// 32-bit lanes; Pair decode_fp4(codes), columns 0 ... 3 and 4 ... 7 of kLanes rows; dot(sum,
// weights, digits), which adds four products in every lane; widen<p>(sum), the int32 sum times 2^(p
// · digit bits); row_scales, to_float and the usual arithmetic.
#pragma once

#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/cpu/prefetch.h"

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
  return V::mul_f(V::mul_f(V::to_float(exact), V::broadcast_f(x.fp4_scale)), scales);
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
      const auto exact =
          V::add_i(join_planes<V, kPlanes>(sums[part]), V::broadcast_i(x.fp4_offset));
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
      read_ahead(codes, kBlockCodeBytes);
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

/// Several activation rows share the decoded weights of a block; V::kRows of them share each load
/// of a decoded weight, and the parts of the tile share each broadcast of digits.
template <class V>
struct Fp4Rows {
  using I = typename V::I;
  static constexpr int kParts = kTileRows / V::kLanes;

  /// Decoded weights of a block: four columns of kLanes rows in each vector.
  struct Block {
    I w[8][kParts];
    typename V::F scales[kParts];
  };

  static void decode(const TileArgs& args, int64_t b, Block& block) {
    const std::byte* codes = args.tile + b * kBlockCodeBytes;
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
#pragma GCC unroll 4
      for (int group = 0; group < 4; ++group) {
        const auto pair = V::decode_fp4(codes + group * 64 + part * V::kLanes * 4);
        block.w[2 * group][part] = pair.first;
        block.w[2 * group + 1][part] = pair.second;
      }
      block.scales[part] = V::row_scales(fp4_scales(args) + b * kTileRows + part * V::kLanes);
    }
  }

  /// Adds plane p of `count` activation rows, each sum times its radix, to `exact`.
  template <int p, int count>
  __attribute__((always_inline)) static void add_plane(
      const Block& block, const DigitBlock* const* x, I (&exact)[count][kParts]
  ) {
    I sums[count][kParts];
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
      for (I& sum : sums[i])
        sum = V::zero_i();
    }
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
#pragma GCC unroll 8
      for (int i = 0; i < count; ++i) {
#pragma GCC unroll 2
        for (int part = 0; part < kParts; ++part)
          sums[i][part] = V::dot(sums[i][part], block.w[k][part], x[i]->digits[p] + 4 * k);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
      for (int part = 0; part < kParts; ++part)
        exact[i][part] = V::add_i(exact[i][part], V::template widen<p>(sums[i][part]));
    }
  }

  template <int count>
  static void rows(const TileArgs& args, int first, int64_t b, const Block& block) {
    const DigitBlock* x[count];
    I exact[count][kParts];
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
      x[i] = reinterpret_cast<const DigitBlock*>(args.rows[first + i]) + b;
      for (I& e : exact[i])
        e = V::broadcast_i(x[i]->fp4_offset);
    }
    add_plane<0, count>(block, x, exact);
    add_plane<1, count>(block, x, exact);
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
      if (x[i]->planes == 3)
        add_plane<2, 1>(block, x + i, reinterpret_cast<I(&)[1][kParts]>(exact[i]));
      for (int part = 0; part < kParts; ++part) {
        float* out = args.out + (first + i) * kTileRows + part * V::kLanes;
        const auto value = finish_block<V>(exact[i][part], *x[i], block.scales[part]);
        V::store(out, V::add_f(V::load(out), value));
      }
    }
  }

  /// The last `count` rows or fewer.
  template <int count>
  static void rest(const TileArgs& args, int first, int64_t b, const Block& block) {
    if constexpr (count > 0) {
      if (args.num_rows - first == count) return rows<count>(args, first, b, block);
      rest<count - 1>(args, first, b, block);
    }
  }

  static void run(const TileArgs& args) {
    for (int i = 0; i < args.num_rows * kTileRows; i += V::kLanes)
      V::store(args.out + i, V::zero_f());
    for (int64_t b = 0; b < args.cols / 32; ++b) {
      Block block;
      decode(args, b, block);
      int first = 0;
      for (; args.num_rows - first >= V::kRows; first += V::kRows)
        rows<V::kRows>(args, first, b, block);
      rest<V::kRows - 1>(args, first, b, block);
    }
  }
};

template <class V>
void fp4_kernel(const TileArgs& args) {
  args.num_rows == 1 ? Fp4OneRow<V>::run(args) : Fp4Rows<V>::run(args);
}

}  // namespace
}  // namespace di::ops::cpu
