#include <algorithm>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/math.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/memory.h"
#include "ops/cuda/mhc_fn.h"
#include "ops/cuda/packing.h"
#include "ops/cuda/staging.h"
#include "ops/cuda/unpack.cuh"
#include "ops/ops.h"

namespace di::ops::cuda {
namespace {

/// Rows of a matrix in checkpoint layout, in device memory: rows [first, last) of `total`.
struct Staged {
  const uint8_t* data;
  const uint8_t* scales;
  int64_t first, last;
  int64_t cols;
};

/// The bits of one value without its scale, 0 outside of the rows and columns.
template <WeightFormat kFormat>
__device__ uint32_t code_at(const Staged& raw, int64_t row, int64_t col) {
  if (row >= raw.last || col >= raw.cols) return 0;
  const int64_t index = (row - raw.first) * raw.cols + col;
  if constexpr (kFormat == WeightFormat::kFp4) return raw.data[index / 2] >> 4 * (col & 1) & 15u;
  if constexpr (kFormat == WeightFormat::kFp8) return raw.data[index];
  return reinterpret_cast<const uint16_t*>(raw.data)[index];
}

/// The codes of register p of the fragment of 16 columns that begins at `col`.
struct Pair {
  uint32_t even, odd;
};
template <WeightFormat kFormat>
__device__ Pair register_codes(const Staged& raw, int64_t row, int64_t col, int lane, int p) {
  const int64_t r = row + (p & 1);
  const int64_t c = col + 2 * (lane % 4) + 8 * (p >> 1);
  return {code_at<kFormat>(raw, r, c), code_at<kFormat>(raw, r, c + 1)};
}

/// Codes of both columns of a register where it keeps them before the multiplication.
__device__ uint32_t fp4_pair(const Pair& code) {
  const auto place = [](uint32_t c) { return (c & 8u) << 12 | (c & 7u) << 6; };
  return place(code.even) | place(code.odd) << 16;
}
__device__ uint32_t fp8_pair(const Pair& code) {
  const auto place = [](uint32_t c) { return (c & 0x80u) << 8 | (c & 0x7fu) << 4; };
  return place(code.even) | place(code.odd) << 16;
}

/// Solves for two bits of each half of a word, `high` and `high` - 8, which a register shows as the
/// xor of both in bit 7 of the half, and as `high` xor the upper half's `high` - 8 in bit 15; above
/// the upper half there is nothing.
__device__ uint32_t solve_chain(uint32_t shown, int high) {
  uint32_t bits = 0;
  uint32_t above = 0;
  for (const int half : {16, 0}) {
    const uint32_t upper_bit = (shown >> (15 + half) & 1u) ^ above;
    above = (shown >> (7 + half) & 1u) ^ upper_bit;
    bits |= upper_bit << (high + half) | above << (high - 8 + half);
  }
  return bits;
}

/// The packed word for the bits of four registers: fp4_places() gives them back.
__device__ uint32_t pack_fp4(const uint32_t (&places)[4]) {
  const uint32_t folded = places[0] ^ places[1];
  uint32_t q = places[0] | places[3] >> 6 | __funnelshift_l(folded, folded, 4);
  const uint32_t rest = places[2] ^ fp4_places(q, 2);
  q |= (rest & 0x01000100u) << 6 | (rest & 0x00400040u) >> 2;
  return q | solve_chain(rest, 13);
}

/// The packed word for the bits of two registers: unpack_fp8() gives them back.
__device__ uint32_t pack_fp8(uint32_t first, uint32_t second) {
  const uint32_t rest = second ^ fp8_second_places(first);
  return first | (rest & 0x07000700u) << 4 | (rest & 0x00700070u) >> 4 | solve_chain(rest, 11);
}

/// Multiplier of a row's columns [col, col + 32); 0 outside of the matrix.
template <WeightFormat kFormat>
__device__ uint8_t multiplier_at(const Staged& raw, int64_t row, int64_t col) {
  if (row >= raw.last || col >= raw.cols) return 0;
  const int64_t groups = (raw.cols + kScaleGroup - 1) / kScaleGroup;
  const int64_t group = col / kScaleGroup;
  if constexpr (kFormat == WeightFormat::kFp4)
    return fp4_multiplier(raw.scales[(row - raw.first) * groups + group]);
  return fp8_multiplier(raw.scales[(row - raw.first) / kScaleGroup * groups + group]);
}

/// The words of one fragment: one for FP4, two for FP8, four for bf16.
template <WeightFormat kFormat>
__device__ void pack_fragment(
    const Staged& raw, int64_t row, int64_t col, int lane, uint32_t* words
) {
  Pair pair[4];
#pragma unroll
  for (int p = 0; p < 4; ++p)
    pair[p] = register_codes<kFormat>(raw, row, col, lane, p);
  if constexpr (kFormat == WeightFormat::kFp4) {
    uint32_t places[4];
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      const bool negated = (multiplier_at<kFormat>(raw, row + (p & 1), col) & kNegated) != 0;
      places[p] = fp4_pair(pair[p]) ^ (negated ? 0x80008000u : 0u);
    }
    words[0] = pack_fp4(places);
  } else if constexpr (kFormat == WeightFormat::kFp8) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      words[i] = pack_fp8(fp8_pair(pair[2 * i]), fp8_pair(pair[2 * i + 1]));
  } else {
#pragma unroll
    for (int p = 0; p < 4; ++p)
      words[p] = pair[p].even | pair[p].odd << 16;
  }
}

/// Whether one of two E4M3 codes in the fields of bf16 is a NaN.
__device__ bool has_nan_code(uint32_t pair) {
  return (pair & 0x07f0u) == 0x07f0u || (pair & 0x07f00000u) == 0x07f00000u;
}

/// One half (32 rows, two warps) of one block. Grid: (column chunks, row halves), 64 threads.
/// A NaN among the E4M3 codes of a scale's tile turns its multiplier into infinity, because
/// unpacking knows no NaN codes: what depends on it is then not finite.
template <WeightFormat kFormat>
__global__ void pack_half_blocks(Staged raw, int64_t chunks, std::byte* packed) {
  const int64_t row_half = raw.first / 32 + blockIdx.y;
  const int64_t first_col = int64_t{blockIdx.x} * kBlockCols;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int half = static_cast<int>(row_half % 2);
  const int warp = 2 * half + static_cast<int>(threadIdx.x) / 32;
  const int thread = 32 * warp + lane;
  const int64_t row = row_half / 2 * kBlockRows + 16 * warp + 2 * (lane / 4);
  std::byte* block = packed + (row_half / 2 * chunks + blockIdx.x) * int64_t{block_bytes(kFormat)};

  constexpr int kWords = kFormat == WeightFormat::kFp4 ? 1 : kFormat == WeightFormat::kFp8 ? 2 : 4;
  uint32_t words[4 * kWords];
#pragma unroll
  for (int k = 0; k < 4; ++k)
    pack_fragment<kFormat>(raw, row, first_col + 16 * k, lane, words + k * kWords);
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    reinterpret_cast<uint4*>(block)[i * 128 + thread] =
        make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
  }

  if constexpr (kFormat == WeightFormat::kFp4) {
    if (lane % 4 != 0) return;
    uchar4 multipliers;
    multipliers.x = multiplier_at<kFormat>(raw, row, first_col);
    multipliers.y = multiplier_at<kFormat>(raw, row + 1, first_col);
    multipliers.z = multiplier_at<kFormat>(raw, row, first_col + 32);
    multipliers.w = multiplier_at<kFormat>(raw, row + 1, first_col + 32);
    reinterpret_cast<uchar4*>(block + 2048)[8 * warp + lane / 4] = multipliers;
  } else if constexpr (kFormat == WeightFormat::kFp8) {
    bool nan[2] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      uint32_t first = 0;
      uint32_t second = 0;
      unpack_fp8(words[i], multiplier_pair(127), first, second);
      nan[i / 4] |= has_nan_code(first) || has_nan_code(second);
    }
    const bool any[2] = {__syncthreads_or(nan[0]) != 0, __syncthreads_or(nan[1]) != 0};
    if (threadIdx.x >= 2) return;
    const int group = static_cast<int>(threadIdx.x);
    reinterpret_cast<uint8_t*>(block + 4096)[2 * half + group] =
        any[group] ? uint8_t{255}
                   : multiplier_at<kFormat>(raw, row_half * 32, first_col + 32 * group);
    if (half == 0 && group == 0) std::memset(block + 4096 + 4, 0, 12);
  }
}

template <WeightFormat kFormat>
void launch(
    const Staged& raw, int64_t chunks, int64_t last_half, std::byte* packed, cudaStream_t s
) {
  const dim3 grid(static_cast<unsigned>(chunks), static_cast<unsigned>(last_half - raw.first / 32));
  pack_half_blocks<kFormat><<<grid, 64, 0, s>>>(raw, chunks, packed);
  check_launch("pack_half_blocks");
}

}  // namespace

int64_t packed_bytes(WeightFormat format, int64_t rows, int64_t cols) {
  if (format == WeightFormat::kF32) return packed_fn_bytes(rows, cols);
  return row_tiles(rows) * column_chunks(cols) * block_bytes(format);
}

void pack(const Weight& raw, RowRange rows, std::byte* packed) {
  DI_CHECK(rows.begin % kPackRows == 0, "whole pieces of a packed matrix");
  DI_CHECK(packed_bytes(raw.format, raw.rows, raw.cols) > 0, "matrices that have a packed form");
  const StagerLease stager;
  const int64_t row_bytes = data_bytes(raw.format, 1, raw.cols);
  const int64_t step = std::max<int64_t>(
      kPackRows, kStagingBytes / std::max<int64_t>(1, row_bytes) / kPackRows * kPackRows
  );
  const int64_t chunks = column_chunks(raw.cols);
  for (int64_t first = rows.begin; first < rows.end; first += step) {
    const int64_t last = std::min(rows.end, first + step);
    const int64_t scales_before = scale_bytes(raw.format, first, raw.cols);
    const int64_t bytes = (last - first) * row_bytes;
    const uint8_t* device = stager->stage(
        raw.data + first * row_bytes,
        bytes,
        raw.scales + scales_before,
        scale_bytes(raw.format, last - first, raw.cols)
    );
    const Staged staged{device, device + align_up(bytes, 16), first, last, raw.cols};
    // The last tile is whole, with zeros where the matrix has no rows.
    const int64_t last_half =
        last == raw.rows ? 2 * row_tiles(raw.rows) : ceil_div(last, kPackRows);
    switch (raw.format) {
      case WeightFormat::kFp4:
        launch<WeightFormat::kFp4>(staged, chunks, last_half, packed, stager->stream());
        break;
      case WeightFormat::kFp8:
        launch<WeightFormat::kFp8>(staged, chunks, last_half, packed, stager->stream());
        break;
      case WeightFormat::kBf16:
        launch<WeightFormat::kBf16>(staged, chunks, last_half, packed, stager->stream());
        break;
      case WeightFormat::kF32:
        pack_fn(reinterpret_cast<const float*>(device), raw.cols, packed, stager->stream());
        break;
    }
    stager->release();
  }
  stager->finish();
}

}  // namespace di::ops::cuda
