#include "ops/cpu/activations.h"

#include <algorithm>
#include <array>

#include "base/math.h"

namespace di::ops::cpu {
namespace {

constexpr int kColumns = kScaleGroup;

/// Every E4M3 value as an integer in units of 2^-9, the smallest subnormal. NaN codes count as 0.
constexpr std::array<int32_t, 256> fixed_point_table() {
  std::array<int32_t, 256> table{};
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15;
    const int mantissa = code & 7;
    const int magnitude = exponent == 0 ? mantissa : (8 + mantissa) << (exponent - 1);
    const bool nan = (code & 0x7f) == 0x7f;
    table[static_cast<std::size_t>(code)] = nan ? 0 : (code & 0x80) != 0 ? -magnitude : magnitude;
  }
  return table;
}
constexpr std::array<int32_t, 256> kFixedPoint = fixed_point_table();

/// The kernel adds 128 to each of the three 7-bit digits of an FP8 weight.
constexpr uint32_t kFp8Added = 128u * (1u + (1u << 7) + (1u << 14));

/// Two digits hold ±448 in units of 2^-(2 · bits − 10).
void make_digits(const int32_t* fixed, float scale, int bits, DigitBlock& out) {
  const int drop = 19 - 2 * bits;  // low bits that must be zero for two digits
  int32_t any = 0;
  for (int i = 0; i < kColumns; ++i)
    any |= fixed[i];
  const bool fine = (any & ((1 << drop) - 1)) != 0;
  const int shift = fine ? 0 : drop;
  const int32_t half = 1 << (bits - 1);
  const int32_t mask = (1 << bits) - 1;
  int32_t sum = 0;
  int32_t digit_sum[3] = {};
  for (int i = 0; i < kColumns; ++i) {
    const int32_t v = fixed[i] >> shift;
    const int32_t low = ((v + half) & mask) - half;
    const int32_t rest = (v - low) >> bits;
    const int32_t middle = ((rest + half) & mask) - half;
    const int32_t high = (rest - middle) >> bits;
    out.digits[0][i] = static_cast<int8_t>(low);
    out.digits[1][i] = static_cast<int8_t>(middle);
    out.digits[2][i] = static_cast<int8_t>(high);
    sum += v;
    digit_sum[0] += low;
    digit_sum[1] += middle;
    digit_sum[2] += high;
  }
  out.planes = fine ? 3 : 2;
  out.fp4_offset = -12 * sum;
  for (int p = 0; p < 3; ++p)  // modulo 2^32, like the kernel's sums; only their total fits
    out.fp8_offset[p] = static_cast<int32_t>(0u - kFp8Added * static_cast<uint32_t>(digit_sum[p]));
  const float unit = static_cast<float>(1 << shift);
  out.fp4_scale = 0x1p-10f * unit * scale;  // exact: at least 2^-137, a subnormal fp32
  out.fp8_scale = 0x1p-18f * unit * scale;
}

void make_words(const int32_t* fixed, float scale, WordBlock& out) {
  for (int i = 0; i < kColumns; ++i) {
    const int32_t low = ((fixed[i] + 256) & 511) - 256;
    out.digits[0][i] = static_cast<int16_t>(low);
    out.digits[1][i] = static_cast<int16_t>((fixed[i] - low) >> 9);
  }
  out.scale = 0x1p-18f * scale;
}

void make_doubles(const int32_t* fixed, float scale, DoubleBlock& out) {
  for (int i = 0; i < kColumns; ++i)
    out.values[i] = 0x1p991 * fixed[i];
  out.scale = scale;
}

int64_t block_bytes(Q8Form form) {
  switch (form) {
    case Q8Form::kDigits: return sizeof(DigitBlock);
    case Q8Form::kWords: return sizeof(WordBlock);
    case Q8Form::kDoubles: return sizeof(DoubleBlock);
  }
  return 0;
}

}  // namespace

int64_t q8_row_bytes(Q8Form form, int64_t cols) {
  return cols / kColumns * block_bytes(form);
}

int64_t double_row_bytes(int64_t cols) {
  return align_up(cols, kColumns) * static_cast<int64_t>(sizeof(double));
}

void prepare_q8(
    Q8Form form,
    int digit_bits,
    const uint8_t* codes,
    const uint8_t* scales,
    int64_t cols,
    std::byte* out
) {
  for (int64_t block = 0; block < cols / kColumns; ++block) {
    int32_t fixed[kColumns];
    for (int i = 0; i < kColumns; ++i)
      fixed[i] = kFixedPoint[codes[block * kColumns + i]];
    const float scale = decode_e8m0(scales[block]);
    switch (form) {
      case Q8Form::kDigits:
        make_digits(fixed, scale, digit_bits, reinterpret_cast<DigitBlock*>(out)[block]);
        break;
      case Q8Form::kWords:
        make_words(fixed, scale, reinterpret_cast<WordBlock*>(out)[block]);
        break;
      case Q8Form::kDoubles:
        make_doubles(fixed, scale, reinterpret_cast<DoubleBlock*>(out)[block]);
        break;
    }
  }
}

void prepare_double(const bf16* x, int64_t cols, std::byte* out) {
  auto* values = reinterpret_cast<double*>(out);
  for (int64_t i = 0; i < cols; ++i)
    values[i] = static_cast<double>(to_float(x[i]));
  std::fill(values + cols, values + align_up(cols, kColumns), 0.0);
}

}  // namespace di::ops::cpu
