#include "ops/cpu/activations.h"

#include <algorithm>
#include <array>

#include "base/math.h"

namespace di::ops::cpu {
namespace {

constexpr int kColumns = kScaleGroup;

/// Every E4M3 value as an integer in units of 2^-9, the smallest subnormal. NaN codes count as 0.
std::array<int32_t, 256> fixed_point_table() {
  std::array<int32_t, 256> table{};
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    table[static_cast<std::size_t>(code)] =
        static_cast<int32_t>(decode_e4m3(static_cast<uint8_t>(code)) * 512.0f);
  }
  return table;
}
const std::array<int32_t, 256> kFixedPoint = fixed_point_table();

std::array<double, 256> value_table() {
  std::array<double, 256> table{};
  for (std::size_t code = 0; code < 256; ++code)
    table[code] = kFixedPoint[code] / 512.0;
  return table;
}
const std::array<double, 256> kValue = value_table();

/// Two planes of `bits`-bit digits hold ±448 in units of 2^-(2 · bits − 10).
void split_digits(const int32_t* fixed, int bits, DigitBlock& out) {
  const int drop = 19 - 2 * bits;  // low bits that must be zero for two planes
  int32_t any = 0;
  for (int i = 0; i < kColumns; ++i)
    any |= fixed[i];
  const bool fine = (any & ((1 << drop) - 1)) != 0;
  const int shift = fine ? 0 : drop;
  const int32_t half = 1 << (bits - 1);
  const int32_t mask = (1 << bits) - 1;
  int32_t sum = 0;
  for (int i = 0; i < kColumns; ++i) {
    const int32_t q = fixed[i] >> shift;
    const int32_t low = ((q + half) & mask) - half;
    const int32_t rest = (q - low) >> bits;
    const int32_t middle = ((rest + half) & mask) - half;
    out.digits[0][i] = static_cast<int8_t>(low);
    out.digits[1][i] = static_cast<int8_t>(middle);
    out.digits[2][i] = static_cast<int8_t>((rest - middle) >> bits);
    sum += q;
  }
  out.offset = -12 * sum;
  out.planes = fine ? 3 : 2;
  out.scale = fine ? 0x1p-10f : 0x1p-10f * static_cast<float>(1 << drop);
}

}  // namespace

int64_t digit_row_bytes(int64_t cols) {
  return cols / kColumns * static_cast<int64_t>(sizeof(DigitBlock));
}

int64_t wide_row_bytes(int64_t cols) {
  return cols / kColumns * static_cast<int64_t>(sizeof(WideBlock));
}

int64_t double_row_bytes(int64_t cols) {
  return align_up(cols, kColumns) * static_cast<int64_t>(sizeof(double));
}

void prepare_digits(
    const uint8_t* codes, const uint8_t* scales, int64_t cols, int digit_bits, std::byte* out
) {
  auto* blocks = reinterpret_cast<DigitBlock*>(out);
  for (int64_t block = 0; block < cols / kColumns; ++block) {
    int32_t fixed[kColumns];
    for (int i = 0; i < kColumns; ++i)
      fixed[i] = kFixedPoint[codes[block * kColumns + i]];
    split_digits(fixed, digit_bits, blocks[block]);
    blocks[block].scale *= decode_e8m0(scales[block]);  // exact: 2^-137 is a subnormal fp32
  }
}

void prepare_wide(const uint8_t* codes, const uint8_t* scales, int64_t cols, std::byte* out) {
  auto* blocks = reinterpret_cast<WideBlock*>(out);
  for (int64_t block = 0; block < cols / kColumns; ++block) {
    for (int i = 0; i < kColumns; ++i)
      blocks[block].values[i] = kValue[codes[block * kColumns + i]];
    blocks[block].scale = decode_e8m0(scales[block]);
  }
}

void prepare_double(const bf16* x, int64_t cols, std::byte* out) {
  auto* values = reinterpret_cast<double*>(out);
  for (int64_t i = 0; i < cols; ++i)
    values[i] = static_cast<double>(to_float(x[i]));
  std::fill(values + cols, values + align_up(cols, kColumns), 0.0);
}

}  // namespace di::ops::cpu
