// Tile kernels that multiply in double, written once over a vector type V. For the files in avx2/,
// avx512/, ... only: all is in an unnamed namespace, so that each keeps its own version.
//
// Lanes are weight rows, so a sum runs over the columns in ascending order in one accumulator
// whatever the width of V: bit for bit what the reference does. All products are exact in double
// (at most 24 + 8 significant bits), so fused and separate multiply-adds agree.
//
// V has: float vector F of kLanes lanes, double vector D of kLanes / 2, Doubles of two D;
// load_bf16, load_f32; doubles_e4m3<j> and interleave as in fp8_doubles.h; low, high (the halves of
// F as D), join (their inverse, rounding), broadcast, zero, fma, mul, store; kDoubleRows, how many
// activation rows share a converted weight.
#pragma once

#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/cpu/prefetch.h"

namespace di::ops::cpu {
namespace {

/// 2^exponent as a double, for normal results.
inline double power_of_two(int exponent) {
  const uint64_t bits = static_cast<uint64_t>(exponent + 1023) << 52;
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// A source loads V::kLanes weights of a column as two D, and turns two sums into the result. The
// column is 4 · group + j; `lane` is the first row.

template <class V>
struct Bf16Source {
  static constexpr int kGroupBytes = 128;  // of four columns
  explicit Bf16Source(const TileArgs& args) : tile(args.tile) {}
  void start_block(int64_t) {}
  template <int j>
  typename V::Doubles load(int64_t group, int lane) const {
    const auto w = V::load_bf16(tile + ((group * 4 + j) * kTileRows + lane) * 2);
    return {V::low(w), V::high(w)};
  }
  static typename V::F finish(typename V::Doubles sums) { return V::join(sums.even, sums.odd); }

  const std::byte* tile;
};

template <class V>
struct F32Source {
  static constexpr int kGroupBytes = 256;  // of four columns
  explicit F32Source(const TileArgs& args) : tile(args.tile) {}
  void start_block(int64_t) {}
  template <int j>
  typename V::Doubles load(int64_t group, int lane) const {
    const auto w = V::load_f32(tile + ((group * 4 + j) * kTileRows + lane) * 4);
    return {V::low(w), V::high(w)};
  }
  static typename V::F finish(typename V::Doubles sums) { return V::join(sums.even, sums.odd); }

  const std::byte* tile;
};

/// The whole product runs 2^-300 too small, so that neither weights of 2^-1016 nor their scales
/// leave the normal doubles.
template <class V>
struct Fp8Source {
  static constexpr int kGroupBytes = 64;  // of four columns
  static constexpr int kDown = 300;

  explicit Fp8Source(const TileArgs& args)
      : tile(args.tile),
        scales(reinterpret_cast<const uint8_t*>(tile) + (args.cols + 31) / 32 * 32 * kTileRows) {}
  void start_block(int64_t block) {
    scale = V::broadcast(power_of_two(scales[block] - 127 + 1016 - kDown));
  }
  template <int j>
  typename V::Doubles load(int64_t group, int lane) const {
    const auto w = V::template doubles_e4m3<j>(V::load_i(tile + (group * kTileRows + lane) * 4));
    return {V::mul(w.even, scale), V::mul(w.odd, scale)};
  }
  static typename V::F finish(typename V::Doubles sums) {
    const auto up = V::broadcast(power_of_two(kDown));
    return V::interleave(V::mul(sums.even, up), V::mul(sums.odd, up));
  }

  const std::byte* tile;
  const uint8_t* scales;
  typename V::D scale = V::zero();
};

/// `kRows` activation rows times kUnits · V::kLanes weight rows from `lane` on.
template <class V, template <class> class Source, int kRows, int kUnits>
struct DoubleTile {
  typename V::Doubles sums[kRows][kUnits];

  template <int j>
  __attribute__((always_inline)) void column(
      const TileArgs& args, const Source<V>& source, int row, int64_t group, int lane
  ) {
    typename V::Doubles w[kUnits];
#pragma GCC unroll 2
    for (int u = 0; u < kUnits; ++u)
      w[u] = source.template load<j>(group, lane + u * V::kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const auto* x = reinterpret_cast<const double*>(args.rows[row + i]);
      const auto a = V::broadcast(x[group * 4 + j]);
#pragma GCC unroll 2
      for (int u = 0; u < kUnits; ++u) {
        sums[i][u].even = V::fma(w[u].even, a, sums[i][u].even);
        sums[i][u].odd = V::fma(w[u].odd, a, sums[i][u].odd);
      }
    }
  }

  __attribute__((always_inline)) void run(const TileArgs& args, int row, int lane) {
    Source<V> source(args);
    for (auto& of_row : sums) {
      for (auto& pair : of_row)
        pair = {V::zero(), V::zero()};
    }
    for (int64_t block = 0; block < (args.cols + 31) / 32; ++block) {
      source.start_block(block);
      for (int64_t group = block * 8; group < block * 8 + 8; ++group) {
        if constexpr (kRows <= 2) {
          read_ahead(args.tile + group * Source<V>::kGroupBytes, Source<V>::kGroupBytes);
        }
        column<0>(args, source, row, group, lane);
        column<1>(args, source, row, group, lane);
        column<2>(args, source, row, group, lane);
        column<3>(args, source, row, group, lane);
      }
    }
    for (int i = 0; i < kRows; ++i) {
      for (int u = 0; u < kUnits; ++u) {
        float* out = args.out + (row + i) * kTileRows + lane + u * V::kLanes;
        V::store(out, Source<V>::finish(sums[i][u]));
      }
    }
  }
};

template <class V, template <class> class Source, int kRows>
void double_rows(const TileArgs& args, int row) {
  // One or two rows wait for memory: they pass over the tile once. More are bound by arithmetic
  // and keep their sums in registers.
  constexpr int kUnits = kRows <= 2 ? kTileRows / V::kLanes : 1;
  for (int lane = 0; lane < kTileRows; lane += kUnits * V::kLanes) {
    DoubleTile<V, Source, kRows, kUnits> tile;
    tile.run(args, row, lane);
  }
}

/// The last kRows rows or fewer.
template <class V, template <class> class Source, int kRows>
void last_double_rows(const TileArgs& args, int row) {
  if constexpr (kRows > 0) {
    if (args.num_rows - row == kRows) return double_rows<V, Source, kRows>(args, row);
    last_double_rows<V, Source, kRows - 1>(args, row);
  }
}

/// Linear.
template <class V, template <class> class Source>
void double_kernel(const TileArgs& args) {
  int row = 0;
  for (; args.num_rows - row >= V::kDoubleRows; row += V::kDoubleRows)
    double_rows<V, Source, V::kDoubleRows>(args, row);
  last_double_rows<V, Source, V::kDoubleRows - 1>(args, row);
}

}  // namespace
}  // namespace di::ops::cpu
