#include "ops/cpu/layout.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <emmintrin.h>

#include "base/check.h"
#include "base/math.h"
#include "ops/cpu/kernels.h"

namespace di::ops::cpu {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kFp4BlockBytes = kTileRows * kScaleGroup / 2;
constexpr int64_t kFp8BlockBytes = kTileRows * kScaleGroup;

/// The checkpoint's rows of one tile. Rows that a last tile lacks read as zeros.
class TileSource {
 public:
  TileSource(const Weight& raw, int64_t first, int64_t row_bytes)
      : num_rows_(std::min<int64_t>(kTileRows, raw.rows - first)) {
    if (num_rows_ < kTileRows) zeros_.resize(static_cast<std::size_t>(row_bytes));
    for (int64_t lane = 0; lane < kTileRows; ++lane)
      rows_[lane] = lane < num_rows_ ? raw.data + (first + lane) * row_bytes : zeros_.data();
  }

  /// Rows of the matrix among the tile's.
  int64_t num_rows() const { return num_rows_; }
  const std::byte* row(int64_t lane) const { return rows_[lane]; }

 private:
  int64_t num_rows_;
  const std::byte* rows_[kTileRows];
  std::vector<std::byte> zeros_;
};

/// out[i][lane] = element i of row `lane`. Source elements may lie at any address.
template <class T>
void interleave(const TileSource& source, int64_t begin, int64_t end, T* out) {
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t lane = 0; lane < kTileRows; ++lane)
      std::memcpy(
          out + i * kTileRows + lane,
          source.row(lane) + i * static_cast<int64_t>(sizeof(T)),
          sizeof(T)
      );
  }
}

/// The same for 32-bit words, four by four, each mapped on the way. The result goes past the
/// caches: a tile is written once and not read before all weights are loaded. `map` reaches whole
/// fours only: FP4, the one format that needs it, comes in blocks of 32 columns, which are four
/// words.
template <class Map>
void interleave_words(const TileSource& source, int64_t count, std::byte* tile, Map map) {
  auto* out = reinterpret_cast<uint32_t*>(tile);
  for (int64_t i = 0; i + 4 <= count; i += 4) {
    for (int64_t lane = 0; lane < kTileRows; lane += 4) {
      __m128i row[4];
      for (int64_t k = 0; k < 4; ++k) {
        const std::byte* from = source.row(lane + k) + i * 4;
        row[k] = map(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
      }
      const __m128i low01 = _mm_unpacklo_epi32(row[0], row[1]);
      const __m128i low23 = _mm_unpacklo_epi32(row[2], row[3]);
      const __m128i high01 = _mm_unpackhi_epi32(row[0], row[1]);
      const __m128i high23 = _mm_unpackhi_epi32(row[2], row[3]);
      const __m128i column[4] = {
          _mm_unpacklo_epi64(low01, low23),
          _mm_unpackhi_epi64(low01, low23),
          _mm_unpacklo_epi64(high01, high23),
          _mm_unpackhi_epi64(high01, high23)};
      for (int64_t k = 0; k < 4; ++k)
        _mm_stream_si128(reinterpret_cast<__m128i*>(out + (i + k) * kTileRows + lane), column[k]);
    }
  }
  interleave(source, count / 4 * 4, count, out);
}

/// The four nibbles in each word's lower half, one in each byte.
__m128i spread_nibbles(__m128i words) {
  const __m128i pairs =
      _mm_and_si128(_mm_or_si128(words, _mm_slli_epi32(words, 8)), _mm_set1_epi32(0x00ff00ff));
  return _mm_and_si128(_mm_or_si128(pairs, _mm_slli_epi32(pairs, 4)), _mm_set1_epi32(0x0f0f0f0f));
}

/// Eight columns of a row as the kernels unpack them: column j in the low nibble of byte j, column
/// j + 4 in the high one.
__m128i fp4_groups(__m128i codes) {
  const __m128i first = spread_nibbles(_mm_and_si128(codes, _mm_set1_epi32(0xffff)));
  const __m128i last = spread_nibbles(_mm_srli_epi32(codes, 16));
  return _mm_or_si128(first, _mm_slli_epi32(last, 4));
}

void pack_fp4_tile(const Weight& raw, int64_t first, std::byte* tile) {
  const int64_t blocks = raw.cols / kScaleGroup;
  const TileSource source(raw, first, raw.cols / 2);
  interleave_words(source, blocks * 4, tile, fp4_groups);
  auto* scales = reinterpret_cast<uint8_t*>(tile) + blocks * kFp4BlockBytes;
  for (int64_t lane = 0; lane < source.num_rows(); ++lane) {
    for (int64_t block = 0; block < blocks; ++block)
      scales[block * kTileRows + lane] = raw.scales[(first + lane) * blocks + block];
  }
}

/// Whether an E4M3 value is no multiple of 2^-6: subnormals but zero, and some of the next three
/// binades. Without branches, so that it runs on many bytes at once.
uint8_t is_fine(uint8_t code) {
  const uint8_t magnitude = code & 0x7f;
  const uint8_t lost = magnitude < 16 ? 7 : magnitude < 24 ? 3 : magnitude < 32 ? 1 : 0;
  return magnitude & lost;
}

/// Which blocks of 32 columns hold a value that needs more than the coarse unit.
void find_fine_blocks(const TileSource& source, int64_t blocks, int64_t cols, uint8_t* has_rest) {
  for (int64_t lane = 0; lane < source.num_rows(); ++lane) {
    const auto* codes = reinterpret_cast<const uint8_t*>(source.row(lane));
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t end = std::min(cols, (block + 1) * kScaleGroup);
      uint8_t fine = 0;
      for (int64_t column = block * kScaleGroup; column < end; ++column)
        fine |= is_fine(codes[column]);
      has_rest[block] |= static_cast<uint8_t>(fine != 0);
    }
  }
}

void pack_fp8_tile(const Weight& raw, int64_t first, std::byte* tile) {
  const int64_t blocks = ceil_div(raw.cols, kScaleGroup);
  const TileSource source(raw, first, raw.cols);
  interleave_words(source, raw.cols / 4, tile, [](__m128i codes) { return codes; });
  auto* out = reinterpret_cast<uint8_t*>(tile);
  for (int64_t column = raw.cols / 4 * 4; column < raw.cols; ++column) {
    for (int64_t lane = 0; lane < kTileRows; ++lane)
      out[(column / 4 * kTileRows + lane) * 4 + column % 4] =
          static_cast<uint8_t>(source.row(lane)[column]);
  }
  uint8_t* scales = out + blocks * kFp8BlockBytes;
  std::memcpy(scales, raw.scales + first / kScaleGroup * blocks, static_cast<std::size_t>(blocks));
  find_fine_blocks(source, blocks, raw.cols, scales + blocks);
}

void pack_tile(const Weight& raw, int64_t first, std::byte* tile) {
  switch (raw.format) {
    case WeightFormat::kFp4: return pack_fp4_tile(raw, first, tile);
    case WeightFormat::kFp8: return pack_fp8_tile(raw, first, tile);
    case WeightFormat::kBf16:
      return interleave(
          TileSource(raw, first, raw.cols * 2), 0, raw.cols, reinterpret_cast<uint16_t*>(tile)
      );
    case WeightFormat::kF32:
      return interleave_words(
          TileSource(raw, first, raw.cols * 4),
          raw.cols,
          tile,
          [](__m128i values) { return values; }
      );
  }
}

/// Bytes at the start of a tile that interleaving writes in full; what follows starts as zeros.
int64_t interleaved_bytes(WeightFormat format, int64_t cols) {
  switch (format) {
    case WeightFormat::kFp4: return kTileRows * cols / 2;
    case WeightFormat::kFp8: return kTileRows * (cols / 4 * 4);
    case WeightFormat::kBf16: return kTileRows * cols * 2;
    case WeightFormat::kF32: return kTileRows * cols * 4;
  }
  return 0;
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
    const int64_t filled = interleaved_bytes(raw.format, raw.cols);
    std::memset(tile + filled, 0, static_cast<std::size_t>(bytes - filled));
    pack_tile(raw, first, tile);
  }
  _mm_sfence();  // before another thread is told that the rows are packed
}

}  // namespace di::ops::cpu
