// FP8 weights times 8-bit activation digits, for few rows with VNNI and VBMI. For vnni/ and later
// only.
//
// In units of 2^-9 a weight's magnitude is three 7-bit digits, each one lookup among 128 bytes by
// the code itself. The tables hold 128 + digit, and subtracting from zero (modulo 256) where the
// weight is negative gives 128 − digit, so that weights are unsigned bytes; DigitBlock::fp8_offset
// takes the 128 back. With T_p = Σ_k w · digits[p], which fits 30 bits, the exact sum is
// S = T0 + 2^8 · T1 + 2^16 · T2; it is cut into two floats without error, S = 2^20 · A + B, and one
// fused multiply-add rounds it once.
#pragma once

#include "ops/cpu/fp8_tiles.h"
#include "ops/cpu/prefetch.h"

namespace di::ops::cpu {
namespace {

/// The three lookup tables, [digit][code & 127].
struct Fp8DigitTable {
  uint8_t bytes[3][128];
};

constexpr Fp8DigitTable make_fp8_digit_table() {
  Fp8DigitTable table{};
  for (int code = 0; code < 128; ++code) {
    const int exponent = code >> 3;
    const int magnitude = exponent == 0 ? code & 7 : (8 + (code & 7)) << (exponent - 1);
    for (int digit = 0; digit < 3; ++digit)
      table.bytes[digit][code] = static_cast<uint8_t>(128 + (magnitude >> (7 * digit) & 127));
  }
  return table;
}
alignas(64) constexpr Fp8DigitTable kFp8DigitTable = make_fp8_digit_table();

template <class V>
struct Fp8Bytes {
  using I = typename V::I;
  static_assert(V::kLanes == kTileRows);

  /// T_p of kPlanes planes: every weight digit with its radix.
  template <int kPlanes>
  __attribute__((always_inline)) static void sums(
      const std::byte* codes, const DigitBlock& x, I (&total)[kPlanes]
  ) {
    I sum[kPlanes][3];
#pragma GCC unroll 3
    for (int p = 0; p < kPlanes; ++p)
      sum[p][0] = sum[p][1] = sum[p][2] = V::zero_i();
#pragma GCC unroll 8
    for (int group = 0; group < 8; ++group) {
      const I code = V::load_i(codes + group * 64);
      const I w[3] = {
          V::lookup_signed(code, kFp8DigitTable.bytes[0]),
          V::lookup_signed(code, kFp8DigitTable.bytes[1]),
          V::lookup_signed(code, kFp8DigitTable.bytes[2])};
#pragma GCC unroll 3
      for (int p = 0; p < kPlanes; ++p) {
#pragma GCC unroll 3
        for (int digit = 0; digit < 3; ++digit)
          sum[p][digit] = V::dot(sum[p][digit], w[digit], x.digits[p] + group * 4);
      }
    }
#pragma GCC unroll 3
    for (int p = 0; p < kPlanes; ++p) {
      const I upper = V::add_i(V::template sll<7>(sum[p][1]), V::template sll<14>(sum[p][2]));
      const I all = V::add_i(V::add_i(sum[p][0], upper), V::broadcast_i(x.fp8_offset[p]));
      total[p] = all;
    }
  }

  template <int kPlanes>
  __attribute__((always_inline)) static typename V::F product(
      const std::byte* codes, const DigitBlock& x
  ) {
    I t[kPlanes];
    sums<kPlanes>(codes, x, t);
    I a = V::add_i(V::template sra<12>(t[1]), V::template sra<20>(t[0]));
    I b = V::add_i(
        V::template sll<8>(V::and_i(t[1], V::broadcast_i(0xfff))),
        V::and_i(t[0], V::broadcast_i(0xfffff))
    );
    if constexpr (kPlanes == 3) {
      a = V::add_i(a, V::template sra<4>(t[2]));
      b = V::add_i(b, V::template sll<16>(V::and_i(t[2], V::broadcast_i(15))));
    }
    return V::fma_f(V::to_float(a), V::broadcast_f(0x1p20f), V::to_float(b));
  }

  static void run(const TileArgs& args) {
    clear_sums<V>(args);
    for (int64_t b = 0; b < args.cols / 32; ++b) {
      const std::byte* codes = args.tile + b * kFp8BlockBytes;
      read_ahead(codes, kFp8BlockBytes);
      const float scale = fp8_scale(args, b);
      for (int i = 0; i < args.num_rows; ++i) {
        const DigitBlock& x = reinterpret_cast<const DigitBlock*>(args.rows[i])[b];
        const auto rounded = x.planes == 2 ? product<2>(codes, x) : product<3>(codes, x);
        add_block<V>(args.out + i * kTileRows, rounded, x.fp8_scale, scale);
      }
    }
  }
};

template <class V>
void fp8_bytes_kernel(const TileArgs& args) {
  Fp8Bytes<V>::run(args);
}

}  // namespace
}  // namespace di::ops::cpu
