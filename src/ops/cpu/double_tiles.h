// Tile kernels that multiply in double, written once over a vector type V. For the files in avx2/,
// avx512/, ... only: all is in an unnamed namespace, so that each keeps its own version.
//
// Lanes are weight rows, so a sum runs over the columns in ascending order in one accumulator
// whatever the width of V: bit for bit what the reference does. All products are exact in double
// (at most 24 + 8 significant bits), so fused and separate multiply-adds agree.
//
// V has: float vector F of kLanes lanes, double vector D of kLanes / 2; load_bf16, load_f32,
// load_e4m3<j> (byte j of each 32-bit lane, times 2^-120), low, high (the halves of F as D),
// broadcast, zero, fma, mul, join (two D rounded to one F), store.
#pragma once

#include <cstring>

#include "ops/cpu/kernels.h"

namespace di::ops::cpu {
namespace {

/// 2^(code − 127) · 2^120 as a double: load_e4m3 leaves the exponent's bias off.
inline double e8m0_of_codes(uint8_t code) {
  const uint64_t bits = static_cast<uint64_t>(code + 1023 - 127 + 120) << 52;
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// Weights of `kUnits` vectors of rows, four columns at a time.
template <class V>
struct Bf16Source {
  template <int j>
  static typename V::F load(const std::byte* tile, int64_t column, int lane) {
    return V::load_bf16(tile + ((column + j) * kTileRows + lane) * 2);
  }
  static constexpr bool kScaled = false;
};

template <class V>
struct F32Source {
  template <int j>
  static typename V::F load(const std::byte* tile, int64_t column, int lane) {
    return V::load_f32(tile + ((column + j) * kTileRows + lane) * 4);
  }
  static constexpr bool kScaled = false;
};

template <class V>
struct Fp8Source {
  template <int j>
  static typename V::F load(const std::byte* tile, int64_t column, int lane) {
    return V::template load_e4m3<j>(tile + column * kTileRows + lane * 4);
  }
  static constexpr bool kScaled = true;
};

/// `kRows` activation rows times kUnits · V::kLanes weight rows from `lane` on.
template <class V, template <class> class Source, int kRows, int kUnits>
struct DoubleTile {
  using D = typename V::D;
  D acc[kRows][kUnits * 2];

  template <int j>
  __attribute__((always_inline)) void column(
      const TileArgs& args, int row, int64_t at, int lane, D scale
  ) {
    D w[kUnits * 2];
    for (int u = 0; u < kUnits; ++u) {
      const auto values = Source<V>::template load<j>(args.tile, at, lane + u * V::kLanes);
      w[2 * u] = V::low(values);
      w[2 * u + 1] = V::high(values);
    }
    if constexpr (Source<V>::kScaled) {
      for (D& v : w)
        v = V::mul(v, scale);
    }
    for (int i = 0; i < kRows; ++i) {
      const D a = V::broadcast(reinterpret_cast<const double*>(args.rows[row + i])[at + j]);
      for (int v = 0; v < kUnits * 2; ++v)
        acc[i][v] = V::fma(w[v], a, acc[i][v]);
    }
  }

  __attribute__((always_inline)) void run(const TileArgs& args, int row, int lane) {
    const int64_t padded = (args.cols + 31) / 32 * 32;
    const auto* scales = reinterpret_cast<const uint8_t*>(args.tile) + padded * kTileRows;
    for (auto& r : acc) {
      for (D& v : r)
        v = V::zero();
    }
    for (int64_t at = 0; at < padded; at += 4) {
      D scale = V::zero();
      if constexpr (Source<V>::kScaled) scale = V::broadcast(e8m0_of_codes(scales[at / 32]));
      column<0>(args, row, at, lane, scale);
      column<1>(args, row, at, lane, scale);
      column<2>(args, row, at, lane, scale);
      column<3>(args, row, at, lane, scale);
    }
    for (int i = 0; i < kRows; ++i) {
      for (int u = 0; u < kUnits; ++u) {
        V::store(
            args.out + (row + i) * kTileRows + lane + u * V::kLanes,
            V::join(acc[i][2 * u], acc[i][2 * u + 1])
        );
      }
    }
  }
};

template <class V, template <class> class Source, int kRows, int kUnits>
void double_rows(const TileArgs& args, int row) {
  for (int lane = 0; lane < kTileRows; lane += kUnits * V::kLanes) {
    DoubleTile<V, Source, kRows, kUnits> tile;
    tile.run(args, row, lane);
  }
}

/// Linear: one or two rows take the whole tile at once, because they wait for memory; more share
/// each converted weight.
template <class V, template <class> class Source>
void double_kernel(const TileArgs& args) {
  int row = 0;
  for (; args.num_rows - row >= 4; row += 4)
    double_rows<V, Source, 4, 1>(args, row);
  if (args.num_rows - row == 3) return double_rows<V, Source, 3, 1>(args, row);
  if (args.num_rows - row == 2) return double_rows<V, Source, 2, kTileRows / V::kLanes>(args, row);
  if (args.num_rows - row == 1) return double_rows<V, Source, 1, kTileRows / V::kLanes>(args, row);
}

}  // namespace
}  // namespace di::ops::cpu
