// FP8 weights times quantised activations in 16-bit words, for many rows: a block is unpacked once.
// For the files in avx2/, avx512/, ... only.
//
// In units of 2^-9 a weight is an integer of 18 bits, w = 8 · main + rest with 0 ≤ rest < 8. The
// main part fits a word; the rest is zero unless |w| < 2^-3 before scaling, which is rare because
// the scale brings the largest of 1024 weights near 448. Rests are added one by one, or by a second
// product when a block has many.
// Activations are two words, q = 512 · d1 + d0. With T_i = Σ main · d_i (below 2^29) and
// R_i = Σ rest · d_i, the exact sum is S = 2^12 · T1 + (8 · T0 + 512 · R1 + R0), 40 bits. It is cut
// into two floats without error, S = 2^20 · A + B, and one fused multiply-add rounds it once.
//
// V has: I, F and kLanes; kWordRows, how many activation rows to take at once;
// fixed_e4m3<j>(codes), byte j of each 32-bit lane in units of 2^-9; join_words(low, high), the low
// halves of two vectors; dot_words(sum, weights, two digits); positive_bytes, a bit for each;
// sra<n>, sll<n>, and_i, fma_f.
#pragma once

#include "ops/cpu/fp8_tiles.h"

namespace di::ops::cpu {
namespace {

template <class V>
struct Fp8Words {
  using I = typename V::I;
  static constexpr int kParts = kTileRows / V::kLanes;

  /// Two columns of kLanes rows in each vector.
  using Words = I[16][kParts];

  /// A weight whose rest is not zero.
  struct Rest {
    int part, lane, column;
    int32_t value;
  };
  /// More than so many are quicker as a second product.
  static constexpr int kFewRests = 12;

  struct Block {
    Words main;
    Words rest;
    int num_rests;
    Rest rests[kFewRests];
  };

  /// The low or high columns of a group of four, as `main` and, when there is one, `rest`.
  template <int pair>
  __attribute__((always_inline)) static void unpack_pair(
      const std::byte* quads, I& main, I& rest, bool has_rest
  ) {
    if (!has_rest) {
      main = V::join_words(
          V::template fixed_e4m3<2 * pair, 6>(quads), V::template fixed_e4m3<2 * pair + 1, 6>(quads)
      );
      return;
    }
    const I low = V::template fixed_e4m3<2 * pair, 9>(quads);
    const I high = V::template fixed_e4m3<2 * pair + 1, 9>(quads);
    const I seven = V::broadcast_i(7);
    main = V::join_words(V::template sra<3>(low), V::template sra<3>(high));
    rest = V::join_words(V::and_i(low, seven), V::and_i(high, seven));
  }

  /// Counts the rests and lists the first of them. A rest is the low byte of its word.
  static void list_rests(Block& block) {
    block.num_rests = 0;
    for (int k = 0; k < 16; ++k) {
      for (int part = 0; part < kParts; ++part) {
        const auto* bytes = reinterpret_cast<const uint8_t*>(&block.rest[k][part]);
        for (uint64_t left = V::positive_bytes(block.rest[k][part]); left != 0; left &= left - 1) {
          const int at = __builtin_ctzll(left);
          if (block.num_rests < kFewRests)
            block.rests[block.num_rests] = {part, at / 4, 2 * k + at % 4 / 2, bytes[at]};
          ++block.num_rests;
        }
      }
    }
  }

  static void unpack(const TileArgs& args, int64_t b, Block& block) {
    const bool has_rest = fp8_has_rest(args, b);
    for (int part = 0; part < kParts; ++part) {
      for (int group = 0; group < 8; ++group) {
        const std::byte* quads =
            args.tile + b * kFp8BlockBytes + group * kTileRows * 4 + part * V::kLanes * 4;
        unpack_pair<0>(quads, block.main[2 * group][part], block.rest[2 * group][part], has_rest);
        unpack_pair<1>(
            quads, block.main[2 * group + 1][part], block.rest[2 * group + 1][part], has_rest
        );
      }
    }
    block.num_rests = 0;
    if (has_rest) list_rests(block);
  }

  /// For each row, part and digit a sum.
  template <int count>
  struct Sums {
    I of[count][kParts][2];
  };

  /// Not inlined, or GCC keeps operands on the stack for a second use.
  template <int count>
  __attribute__((noinline)) static Sums<count> products(const Words& w, const WordBlock* const* x) {
    Sums<count> sums;
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
      for (auto& part : sums.of[i])
        part[0] = part[1] = V::zero_i();
    }
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) {
#pragma GCC unroll 8
      for (int i = 0; i < count; ++i) {
#pragma GCC unroll 2
        for (int d = 0; d < 2; ++d) {
          const I digits = V::two_digits(x[i]->digits[d] + 2 * k);
#pragma GCC unroll 2
          for (int part = 0; part < kParts; ++part)
            sums.of[i][part][d] = V::dot_words(sums.of[i][part][d], w[k][part], digits);
        }
      }
    }
    return sums;
  }

  /// 2^12 · high + low, rounded once.
  __attribute__((always_inline)) static typename V::F round_once(I high, I low) {
    const I a = V::add_i(V::template sra<8>(high), V::template sra<20>(low));
    const I high_bits = V::template sll<12>(V::and_i(high, V::broadcast_i(0xff)));
    const I b = V::add_i(high_bits, V::and_i(low, V::broadcast_i(0xfffff)));
    return V::fma_f(V::to_float(a), V::broadcast_f(0x1p20f), V::to_float(b));
  }

  /// Adds Σ rest · q to 8 · T0.
  template <int count>
  static void add_rests(const Block& block, const WordBlock* const* x, Sums<count>& sums) {
    if (block.num_rests > kFewRests) {
      const Sums<count> rest = products<count>(block.rest, x);
      for (int i = 0; i < count; ++i) {
        for (int part = 0; part < kParts; ++part) {
          const I joined = V::add_i(V::template sll<9>(rest.of[i][part][1]), rest.of[i][part][0]);
          sums.of[i][part][0] = V::add_i(sums.of[i][part][0], joined);
        }
      }
      return;
    }
    for (int r = 0; r < block.num_rests; ++r) {
      const Rest& rest = block.rests[r];
      for (int i = 0; i < count; ++i) {
        const int32_t q = x[i]->digits[1][rest.column] * 512 + x[i]->digits[0][rest.column];
        auto* lane = reinterpret_cast<std::byte*>(&sums.of[i][rest.part][0]) + rest.lane * 4;
        int32_t sum;
        std::memcpy(&sum, lane, sizeof sum);
        sum += rest.value * q;
        std::memcpy(lane, &sum, sizeof sum);
      }
    }
  }

  template <int count>
  static void rows(const TileArgs& args, int first, int64_t b, const Block& block) {
    const WordBlock* x[count];
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i)
      x[i] = reinterpret_cast<const WordBlock*>(args.rows[first + i]) + b;
    Sums<count> sums = products<count>(block.main, x);
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
      for (auto& part : sums.of[i])
        part[0] = V::template sll<3>(part[0]);
    }
    if (block.num_rests > 0) add_rests<count>(block, x, sums);
    const float scale = fp8_scale(args, b);
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
      for (int part = 0; part < kParts; ++part) {
        float* out = args.out + (first + i) * kTileRows + part * V::kLanes;
        add_block<V>(out, round_once(sums.of[i][part][1], sums.of[i][part][0]), x[i]->scale, scale);
      }
    }
  }

  /// All rows from `first` on, `count` at a time, then half as many.
  template <int count>
  static void groups(const TileArgs& args, int first, int64_t b, const Block& block) {
    for (; args.num_rows - first >= count; first += count)
      rows<count>(args, first, b, block);
    if constexpr (count > 1) groups<count / 2>(args, first, b, block);
  }

  static void run(const TileArgs& args) {
    clear_sums<V>(args);
    for (int64_t b = 0; b < args.cols / 32; ++b) {
      Block block;
      unpack(args, b, block);
      groups<V::kWordRows>(args, 0, b, block);
    }
  }
};

template <class V>
void fp8_words_kernel(const TileArgs& args) {
  Fp8Words<V>::run(args);
}

}  // namespace
}  // namespace di::ops::cpu
