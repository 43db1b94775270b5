#include "ops/cpu/layout.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/math.h"
#include "ops/cpu/kernels.h"

namespace di::ops::cpu {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kFp4BlockBytes = kTileRows * kScaleGroup / 2;
constexpr int64_t kFp8BlockBytes = kTileRows * kScaleGroup;

/// Code bits of an FP4 weight.
uint8_t fp4_code(const uint8_t* row, int64_t column) {
  return static_cast<uint8_t>(row[column / 2] >> (column % 2 * 4) & 15);
}

void pack_fp4_row(const Weight& raw, int64_t n, std::byte* tile, int64_t lane) {
  const int64_t blocks = raw.cols / kScaleGroup;
  const auto* codes = reinterpret_cast<const uint8_t*>(raw.data) + n * raw.cols / 2;
  auto* out = reinterpret_cast<uint8_t*>(tile);
  for (int64_t group = 0; group < blocks * 4; ++group) {
    uint8_t* quad = out + group * kTileRows * 4 + lane * 4;
    for (int64_t j = 0; j < 4; ++j) {
      const int64_t column = group * 8 + j;
      quad[j] = static_cast<uint8_t>(fp4_code(codes, column) | fp4_code(codes, column + 4) << 4);
    }
  }
  uint8_t* scales = out + blocks * kFp4BlockBytes;
  for (int64_t block = 0; block < blocks; ++block)
    scales[block * kTileRows + lane] = raw.scales[n * blocks + block];
}

/// Whether an E4M3 value is a multiple of 2^-6: subnormals are not, nor are some of the next three
/// binades.
bool is_coarse(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  if (exponent == 0) return mantissa == 0;
  return exponent > 3 || (mantissa << (exponent - 1) & 7) == 0;
}

void pack_fp8_row(const Weight& raw, int64_t n, std::byte* tile, int64_t lane) {
  const int64_t blocks = ceil_div(raw.cols, kScaleGroup);
  const auto* codes = reinterpret_cast<const uint8_t*>(raw.data) + n * raw.cols;
  auto* out = reinterpret_cast<uint8_t*>(tile);
  uint8_t* scales = out + blocks * kFp8BlockBytes;
  uint8_t* has_rest = scales + blocks;
  for (int64_t column = 0; column < raw.cols; ++column) {
    out[(column / 4 * kTileRows + lane) * 4 + column % 4] = codes[column];
    has_rest[column / kScaleGroup] |= static_cast<uint8_t>(!is_coarse(codes[column]));
  }
  const uint8_t* raw_scales = raw.scales + n / kScaleGroup * blocks;
  std::memcpy(scales, raw_scales, static_cast<std::size_t>(blocks));
}

template <class T>
void pack_plain_row(const Weight& raw, int64_t n, std::byte* tile, int64_t lane) {
  const T* values = reinterpret_cast<const T*>(raw.data) + n * raw.cols;
  T* out = reinterpret_cast<T*>(tile);
  for (int64_t column = 0; column < raw.cols; ++column)
    out[column * kTileRows + lane] = values[column];
}

void pack_row(const Weight& raw, int64_t n, std::byte* tile, int64_t lane) {
  switch (raw.format) {
    case WeightFormat::kFp4: return pack_fp4_row(raw, n, tile, lane);
    case WeightFormat::kFp8: return pack_fp8_row(raw, n, tile, lane);
    case WeightFormat::kBf16: return pack_plain_row<uint16_t>(raw, n, tile, lane);
    case WeightFormat::kF32: return pack_plain_row<float>(raw, n, tile, lane);
  }
}

}  // namespace

int64_t tile_bytes(WeightFormat format, int64_t cols) {
  const int64_t blocks = ceil_div(cols, kScaleGroup);
  switch (format) {
    case WeightFormat::kFp4: return align_up(blocks * (kFp4BlockBytes + kTileRows), kAlignment);
    case WeightFormat::kFp8: return align_up(blocks * (kFp8BlockBytes + 2), kAlignment);
    case WeightFormat::kBf16: return blocks * kScaleGroup * kTileRows * 2;
    case WeightFormat::kF32: return blocks * kScaleGroup * kTileRows * 4;
  }
  return 0;
}

int64_t packed_bytes(WeightFormat format, int64_t rows, int64_t cols) {
  return ceil_div(rows, kTileRows) * tile_bytes(format, cols);
}

void pack(const Weight& raw, RowRange rows, std::byte* packed) {
  DI_CHECK(rows.begin % kTileRows == 0, "packing starts at a tile");
  const int64_t bytes = tile_bytes(raw.format, raw.cols);
  for (int64_t first = rows.begin; first < rows.end; first += kTileRows) {
    std::byte* tile = packed + first / kTileRows * bytes;
    std::memset(tile, 0, static_cast<std::size_t>(bytes));
    const int64_t end = std::min(rows.end, first + kTileRows);
    for (int64_t n = first; n < end; ++n)
      pack_row(raw, n, tile, n - first);
  }
}

}  // namespace di::ops::cpu
