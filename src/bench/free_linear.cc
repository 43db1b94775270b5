#include "bench/free_linear.h"

#include <algorithm>
#include <cstring>

#include <immintrin.h>

#include "base/isa.h"
#include "base/math.h"
#include "ops/cpu/layout.h"
#include "ops/cpu/prefetch.h"

// Every function that touches a register is compiled for these, whatever the rest of the program
// is.
#define DI_BF16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define DI_BF16_INLINE DI_BF16 __attribute__((always_inline)) inline

// GCC 12 takes the deliberately undefined registers in its own AVX-512 header for mistakes.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace di::bench {
namespace {

constexpr int64_t kTileRows = 16;   // weight rows: the lanes of a register (ops/cpu/layout.h)
constexpr int64_t kChunkRows = 32;  // activation rows that share a decoded block
constexpr int kPairs = 16;          // of columns in a block

/// A block of 32 columns: pair p of columns in the two halves of every lane, and a factor a lane.
struct Block {
  __m512i pairs[kPairs];
  __m512 scale;
};

DI_BF16_INLINE __m512i load(const std::byte* at) {
  return _mm512_loadu_si512(at);
}

/// 2^(code − 127); 2^-127 is a subnormal.
DI_BF16_INLINE __m512 scale_of(__m512i codes) {
  const __m512i bits = _mm512_slli_epi32(codes, 23);
  return _mm512_castsi512_ps(_mm512_max_epi32(bits, _mm512_set1_epi32(0x00400000)));
}

/// Byte j of each lane as E4M3.
template <int j>
DI_BF16_INLINE __m512i e4m3(__m512i codes) {
  const __m512i top = _mm512_slli_epi32(codes, 24 - 8 * j);
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0x87f00000u));
  const __m512i bits = _mm512_and_si512(_mm512_srai_epi32(top, 4), mask);
  const __m512 value = _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f));
  return _mm512_castps_si512(value);
}

/// fp32 bits of an even and an odd column, whose low halves are zero, as a pair.
DI_BF16_INLINE __m512i pair_of(__m512i even, __m512i odd) {
  return _mm512_or_si512(_mm512_srli_epi32(even, 16), odd);
}

struct Fp8 {
  static constexpr int64_t kBytes = 32 * kTileRows;  // of a block, without scales
  DI_BF16_INLINE static void decode(const std::byte* tile, int64_t cols, int64_t b, Block& block) {
    const std::byte* at = tile + b * kBytes;
    ops::cpu::read_ahead(at, kBytes);
#pragma GCC unroll 8
    for (int group = 0; group < 8; ++group) {
      const __m512i codes = load(at + group * 64);
      block.pairs[2 * group] = pair_of(e4m3<0>(codes), e4m3<1>(codes));
      block.pairs[2 * group + 1] = pair_of(e4m3<2>(codes), e4m3<3>(codes));
    }
    block.scale = scale_of(_mm512_set1_epi32(static_cast<int>(tile[cols * kTileRows + b])));
  }
};

struct Fp4 {
  static constexpr int64_t kBytes = 16 * kTileRows;
  /// Looks up the low nibbles of even's lower and of odd's upper half of each lane.
  DI_BF16_INLINE static __m512i look_up(__m512i table, __m512i even, __m512i odd) {
    return _mm512_permutexvar_epi16(_mm512_mask_blend_epi16(0xaaaaaaaa, even, odd), table);
  }
  DI_BF16_INLINE static void decode(const std::byte* tile, int64_t cols, int64_t b, Block& block) {
    const std::byte* at = tile + b * kBytes;
    ops::cpu::read_ahead(at, kBytes);
    // 0, ½, 1, 1½, 2, 3, 4, 6 and their negatives; bit 4 of an index may be anything.
    const __m256i values = _mm256_setr_epi16(
        0x0000,
        0x3f00,
        0x3f80,
        0x3fc0,
        0x4000,
        0x4040,
        0x4080,
        0x40c0,
        static_cast<short>(0x8000),
        static_cast<short>(0xbf00),
        static_cast<short>(0xbf80),
        static_cast<short>(0xbfc0),
        static_cast<short>(0xc000),
        static_cast<short>(0xc040),
        static_cast<short>(0xc080),
        static_cast<short>(0xc0c0)
    );
    const __m512i table = _mm512_broadcast_i64x4(values);
#pragma GCC unroll 4
    for (int group = 0; group < 4; ++group) {
      const __m512i low = load(at + group * 64);  // columns 0 … 3; 4 … 7 are the high nibbles
      const __m512i high = _mm512_srli_epi32(low, 4);
      block.pairs[4 * group] = look_up(table, low, _mm512_slli_epi32(low, 8));
      block.pairs[4 * group + 1] =
          look_up(table, _mm512_srli_epi32(low, 16), _mm512_srli_epi32(low, 8));
      block.pairs[4 * group + 2] = look_up(table, high, _mm512_slli_epi32(high, 8));
      block.pairs[4 * group + 3] =
          look_up(table, _mm512_srli_epi32(high, 16), _mm512_srli_epi32(high, 8));
    }
    const auto* codes = reinterpret_cast<const __m128i*>(tile + cols / 2 * kTileRows) + b;
    block.scale = scale_of(_mm512_cvtepu8_epi32(_mm_loadu_si128(codes)));
  }
};

struct Bf16 {
  static constexpr int64_t kBytes = 64 * kTileRows;
  DI_BF16_INLINE static void decode(const std::byte* tile, int64_t, int64_t b, Block& block) {
    const std::byte* at = tile + b * kBytes;
    ops::cpu::read_ahead(at, kBytes);
#pragma GCC unroll 16
    for (int p = 0; p < kPairs; ++p) {
      const __m512i both = load(at + p * 64);  // a column of all rows, then the next one
      const __m512i even = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(both));
      const __m512i odd = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1));
      block.pairs[p] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
    }
    block.scale = _mm512_set1_ps(1.0f);
  }
};

/// One tile times some activation rows.
struct Tile {
  const std::byte* weights;
  int64_t cols;
  const bf16* x;
  int64_t num_rows;
  float* out;  // [num_rows][kTileRows]
};

/// Adds the block to kRows rows from `row` on, each with kSums sums of its own.
template <int kRows, int kSums>
DI_BF16_INLINE void add_rows(const Tile& tile, const Block& block, int64_t b, int64_t row) {
  __m512 sums[kRows][kSums];
  const bf16* x[kRows];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    x[i] = tile.x + (row + i) * tile.cols + b * 32;
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s)
      sums[i][s] = _mm512_setzero_ps();
  }
#pragma GCC unroll 16
  for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      int32_t two;
      std::memcpy(&two, x[i] + 2 * p, sizeof two);
      const __m512i pair = _mm512_set1_epi32(two);
      sums[i][p % kSums] = _mm512_dpbf16_ps(
          sums[i][p % kSums],
          reinterpret_cast<__m512bh>(block.pairs[p]),
          reinterpret_cast<__m512bh>(pair)
      );
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    __m512 sum = sums[i][0];
#pragma GCC unroll 4
    for (int s = 1; s < kSums; ++s)
      sum = _mm512_add_ps(sum, sums[i][s]);
    float* out = tile.out + (row + i) * kTileRows;
    _mm512_storeu_ps(out, _mm512_fmadd_ps(sum, block.scale, _mm512_loadu_ps(out)));
  }
}

/// Adds the block to all rows.
template <SumOrder order>
DI_BF16_INLINE void add_all_rows(const Tile& tile, const Block& block, int64_t b) {
  constexpr bool kFixed = order == SumOrder::kFixed;
  int64_t row = 0;
  if constexpr (!kFixed) {
    for (; tile.num_rows - row >= 8; row += 8)
      add_rows<8, 1>(tile, block, b, row);
  }
  for (; tile.num_rows - row >= 4; row += 4)
    add_rows<4, kFixed ? 2 : 1>(tile, block, b, row);
  for (; tile.num_rows - row >= 2; row += 2)
    add_rows<2, 2>(tile, block, b, row);
  if (row < tile.num_rows) add_rows<1, kFixed ? 2 : 4>(tile, block, b, row);
}

template <class Format, SumOrder order>
DI_BF16 void run_tile(const Tile& tile) {
  for (int64_t i = 0; i < tile.num_rows; ++i)
    _mm512_storeu_ps(tile.out + i * kTileRows, _mm512_setzero_ps());
  for (int64_t b = 0; b < tile.cols / 32; ++b) {
    Block block;
    Format::decode(tile.weights, tile.cols, b, block);
    add_all_rows<order>(tile, block, b);
  }
}

using TileKernel = void (*)(const Tile&);

template <SumOrder order>
TileKernel kernel_for(ops::WeightFormat format) {
  switch (format) {
    case ops::WeightFormat::kFp8: return run_tile<Fp8, order>;
    case ops::WeightFormat::kFp4: return run_tile<Fp4, order>;
    default: return run_tile<Bf16, order>;
  }
}

}  // namespace

bool has_free_linear() {
  return detect_cpu().avx512_bf16;
}

void free_linear(ops::Exec& exec, const FreeLinear& op) {
  const TileKernel kernel = op.order == SumOrder::kFree ? kernel_for<SumOrder::kFree>(op.w.format)
                                                        : kernel_for<SumOrder::kFixed>(op.w.format);
  const int64_t tiles = ceil_div(op.w.rows, kTileRows);
  const int64_t chunks = ceil_div(op.rows, kChunkRows);
  const int64_t bytes = ops::cpu::tile_bytes(op.w.format, op.w.cols);
  const int64_t count = tiles * chunks;
  const int64_t grain = std::max<int64_t>(1, count / (8 * exec.pool.num_threads()));
  exec.pool.parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    float out[kChunkRows * kTileRows];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t tile = i % tiles;
      const int64_t first = i / tiles * kChunkRows;
      const int64_t rows = std::min(kChunkRows, op.rows - first);
      kernel({op.w.data + tile * bytes, op.w.cols, op.x + first * op.w.cols, rows, out});
      const int64_t width = std::min(kTileRows, op.w.rows - tile * kTileRows);
      for (int64_t row = 0; row < rows; ++row) {
        bf16* y = op.y + (first + row) * op.w.rows + tile * kTileRows;
        for (int64_t n = 0; n < width; ++n)
          y[n] = to_bf16(out[row * kTileRows + n]);
      }
    }
  });
}

std::vector<bf16> dequantised(const ops::Q8View& x) {
  const int64_t rows = x.codes.dim(0);
  const int64_t cols = x.codes.dim(1);
  std::vector<bf16> values;
  values.reserve(static_cast<std::size_t>(rows * cols));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const float scale = decode_e8m0(x.scales(row, col / ops::kScaleGroup));
      values.push_back(to_bf16(decode_e4m3(x.codes(row, col)) * scale));
    }
  }
  return values;
}

}  // namespace di::bench
