// FP8 weights times quantised activations in double, for few rows. For the files in avx2/, avx512/,
// ... only.
//
// The seven bits of an E4M3 magnitude become the low exponent bits and the high mantissa bits of a
// double, without a conversion: three bit operations a vector. That is the weight times 2^-1016;
// DoubleBlock is scaled up so that products stay normal numbers. A block's sum takes 41 bits, so it
// is exact in any order and several accumulators may share it.
//
// V has: D (doubles, kLanes / 2); doubles_e4m3<j>: byte j of the even and of the odd 32-bit lanes
// as such doubles; interleave: even and odd rows rounded to one F; broadcast, mul, add_d, fma.
#pragma once

#include "ops/cpu/fp8_tiles.h"
#include "ops/cpu/prefetch.h"

namespace di::ops::cpu {
namespace {

template <class V, int kRows>
struct Fp8Doubles {
  using D = typename V::D;
  static constexpr int kParts = kTileRows / V::kLanes;
  static constexpr int kChains = kRows == 1 ? 2 : 1;  // one row alone would wait for each sum

  /// Sums of even and odd rows.
  struct Sums {
    D even, odd;
  };
  using AllSums = Sums[kRows][kParts][kChains];

  template <int j>
  __attribute__((always_inline)) static void column(
      const typename V::I (&quads)[kParts], const DoubleBlock* const* x, int at, AllSums& sums
  ) {
    typename V::Doubles w[kParts];
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part)
      w[part] = V::template doubles_e4m3<j>(quads[part]);
#pragma GCC unroll 2
    for (int i = 0; i < kRows; ++i) {
      const D a = V::broadcast(x[i]->values[at + j]);
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        Sums& sum = sums[i][part][j % kChains];
        sum.even = V::fma(w[part].even, a, sum.even);
        sum.odd = V::fma(w[part].odd, a, sum.odd);
      }
    }
  }

  static void block(const TileArgs& args, int row, int64_t b) {
    const DoubleBlock* x[kRows];
    AllSums sums;
    read_ahead(args.tile + b * kFp8BlockBytes, kFp8BlockBytes);
    for (int i = 0; i < kRows; ++i) {
      x[i] = reinterpret_cast<const DoubleBlock*>(args.rows[row + i]) + b;
      for (auto& part : sums[i]) {
        for (Sums& sum : part)
          sum = {V::zero(), V::zero()};
      }
    }
    for (int at = 0; at < 32; at += 4) {
      typename V::I quads[kParts];
      for (int part = 0; part < kParts; ++part) {
        const std::byte* codes = args.tile + b * kFp8BlockBytes + at * kTileRows;
        quads[part] = V::load_i(codes + part * V::kLanes * 4);
      }
      column<0>(quads, x, at, sums);
      column<1>(quads, x, at, sums);
      column<2>(quads, x, at, sums);
      column<3>(quads, x, at, sums);
    }
    for (int i = 0; i < kRows; ++i) {
      for (int part = 0; part < kParts; ++part) {
        Sums sum = sums[i][part][0];
        if constexpr (kChains == 2) {
          sum.even = V::add_d(sum.even, sums[i][part][1].even);
          sum.odd = V::add_d(sum.odd, sums[i][part][1].odd);
        }
        const D unit = V::broadcast(0x1p16);
        const auto rounded = V::interleave(V::mul(sum.even, unit), V::mul(sum.odd, unit));
        float* out = args.out + (row + i) * kTileRows + part * V::kLanes;
        add_block<V>(out, rounded, x[i]->scale, fp8_scale(args, b));
      }
    }
  }

  static void run(const TileArgs& args, int row) {
    for (int64_t b = 0; b < args.cols / 32; ++b)
      block(args, row, b);
  }
};

template <class V>
void fp8_doubles_kernel(const TileArgs& args) {
  clear_sums<V>(args);
  int row = 0;
  for (; args.num_rows - row >= 2; row += 2)
    Fp8Doubles<V, 2>::run(args, row);
  if (row < args.num_rows) Fp8Doubles<V, 1>::run(args, row);
}

}  // namespace
}  // namespace di::ops::cpu
