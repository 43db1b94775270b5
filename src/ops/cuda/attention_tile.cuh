// Records of 512 channels on their way into the bf16 tiles that the tensor cores read.
//
// A piece is 32 channels of a key or head: 64 bytes of a tile. A cell is two of them: one row of a
// column block. Records are copied into the cells where they will be unpacked, at places that
// depend on the lane which does it, such that neither copies nor reads meet in a bank.
//
// Inside a piece the channels are permuted:
// place 8i + 2t + e holds channel 8t + i + 4e. So codes that lie four apart in a word of a record
// end up as a pair, which their bits need, and a thread's accumulators of four neighbouring column
// groups are eight consecutive channels, sixteen bytes of output. Q is permuted alike.
//
// Tiles hold 2^-kKeyShift of the values, so that the multiplier which mends exponent bias and scale
// is a finite bf16 for every E4M3 scale and for E8M0 scales up to 2^14.
#pragma once

#include "ops/cuda/attention_list.cuh"
#include "ops/cuda/attention_mma.cuh"
#include "ops/cuda/pipeline.cuh"
#include "ops/cuda/unpack.cuh"
#include "ops/cuda/vectors.cuh"

namespace di::ops::cuda {

inline constexpr int kKeyShift = 7;
inline constexpr int kPieceDim = 32;
inline constexpr int kPieces = kTileDim / kPieceDim;

__device__ inline bool is_fp8(PackedKey key) {
  return (key & 1) != 0;
}
__device__ inline const uint8_t* record_of(PackedKey key) {
  return reinterpret_cast<const uint8_t*>(key & ~PackedKey{1});
}

/// Starts to copy kBytes to shared memory; writes zeros when there is nothing to copy. Sixteen
/// bytes pass by the first-level cache, in which nothing is found again.
template <int kBytes>
__device__ inline void copy_async(uint32_t to, const void* from, bool real) {
  const int bytes = real ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(to),
                 "l"(from),
                 "n"(kBytes),
                 "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to),
                 "l"(from),
                 "n"(kBytes),
                 "r"(bytes)
                 : "memory");
  }
}
template <int kBytes>
__device__ inline void copy_async(unsigned char* to, const void* from, bool real) {
  copy_async<kBytes>(shared_address(to), from, real);
}
/// Closes a batch of this thread's copies.
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most kPending batches of this thread are unfinished; other lanes see the copies
/// after a __syncwarp.
template <int kPending>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Where in a row of 128 bytes the raw codes of a cell lie: chunk number `part` (FP4: 2, FP8: 4) of
/// the cell that lanes of group `group` = lane / 8 unpack. Four neighbouring cells of FP4, or two
/// of FP8, fill all banks.
__device__ inline int codes_chunk(int group, bool fp8, int part) {
  return (fp8 ? group % 2 * 4 : group * 2) + part;
}

/// Where a lane keeps the scales of its cell, in row lane % 8.
__device__ inline int scales_offset(int lane, bool fp8) {
  const int chunk = codes_chunk(lane / 8, fp8, fp8 ? 4 : 2) % 8;
  return swizzled_offset(lane % 8, chunk) + lane / 8 * 4;
}

/// Copies the cells of eight keys in four columns, by one warp. A lane copies codes of keys
/// lane / 8 and lane / 8 + 4, eight lanes a line of 128 bytes; what it copies lies in chunk lane %
/// 8 of a cell whatever the format. What does not change from call to call is kept.
template <int kColumnBytes>
class CellCopies {
 public:
  __device__ explicit CellCopies(int lane)
      : lane_(lane),
        codes_(swizzled_offset(lane / 8, lane % 8)),
        scales_fp4_(lane / 8 * kColumnBytes + scales_offset(lane, false)),
        scales_fp8_(lane / 8 * kColumnBytes + scales_offset(lane, true)) {}

  /// Starts the copies. `rows` is the shared address of the keys' rows in the first of the column
  /// blocks; `half` says which of the record's halves it is. No key: zeros. Returns whether the key
  /// whose cell the lane will unpack is FP8.
  __device__ bool begin(uint32_t rows, const PackedKey* keys, int half) const {
    const PackedKey own = keys[lane_ % 8];
    const PackedKey upper = keys[lane_ / 8];
    const PackedKey lower = keys[lane_ / 8 + 4];
    const bool fp8 = is_fp8(own);
    if (__any_sync(0xffffffffu, fp8)) {
      copy_codes(rows + codes_, upper, half);
      copy_codes(rows + lower_codes(), lower, half);
    } else {
      const uint32_t column = lane_ % 8 / 2 * kColumnBytes;
      copy_line(rows + column + codes_, upper, half * 128);
      copy_line(rows + column + lower_codes(), lower, half * 128);
    }
    const int scales =
        fp8 ? kTileDim + half * 8 + lane_ / 16 * 4 : kTileDim / 2 + half * 16 + lane_ / 8 * 4;
    copy_async<4>(rows + (fp8 ? scales_fp8_ : scales_fp4_), record_of(own) + scales, own != 0);
    return fp8;
  }

 private:
  __device__ int lower_codes() const { return (codes_ ^ 64) + 512; }

  /// Sixteen of the 128 bytes from `first` on.
  __device__ void copy_line(uint32_t to, PackedKey key, int first) const {
    copy_async<16>(to, record_of(key) + first + lane_ % 8 * 16, key != 0);
  }

  __device__ void copy_codes(uint32_t to, PackedKey key, int half) const {
    if (is_fp8(key)) {
      const uint32_t column = lane_ % 8 / 4 * kColumnBytes;
      copy_line(to + column, key, half * 256);
      copy_line(to + column + 2 * kColumnBytes, key, half * 256 + 128);
    } else {
      copy_line(to + lane_ % 8 / 2 * kColumnBytes, key, half * 128);
    }
  }

  int lane_;
  int codes_;
  int scales_fp4_;
  int scales_fp8_;
};

/// Bits of two E4M3 codes, in bytes 1 and 3, as bf16 of 2^-120 of their values.
__device__ inline uint32_t spread_fp8(uint32_t x) {
  return (x & 0x80008000u) | (x >> 4 & 0x07f007f0u);
}

/// A word of E2M1: codes i and i + 4 as pair i, bf16 of 2^-126 of their values. Signs and
/// magnitudes of two codes at a time are brought to the distance that bf16 wants, then to their
/// place.
__device__ inline void spread_fp4(uint32_t q, uint32_t (&pairs)[4]) {
  constexpr uint32_t kPlace = 0x81c081c0u;
  const uint32_t low = (q << 8 & 0x88008800u) | (q << 2 & 0x01dc01dcu);
  const uint32_t high = (q & 0x88008800u) | (q >> 6 & 0x01dc01dcu);
  pairs[0] = low << 4 & kPlace;
  pairs[1] = low & kPlace;
  pairs[2] = high << 4 & kPlace;
  pairs[3] = high & kPlace;
}

/// The four chunks of a piece of FP4 with its two E4M3 scales.
__device__ inline void unpack_piece_fp4(const uint4& codes, uint32_t scales, uint4 (&chunks)[4]) {
  // E4M3 scales, subnormal ones too: 2^-120 · 2^120 · 2^(126 - kKeyShift).
  const uint32_t multipliers = multiply_bf16x2(
      multiply_bf16x2(spread_fp8(__byte_perm(scales, 0, 0x1404)), 0x7b807b80u),
      multiplier_pair(127 + 126 - kKeyShift)
  );
  const uint32_t first = __byte_perm(multipliers, 0, 0x1010);
  const uint32_t second = __byte_perm(multipliers, 0, 0x3232);
  const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
  uint32_t pairs[4][4];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const uint32_t multiplier = t < 2 ? first : second;
    uint32_t spread[4];
    spread_fp4(words[t], spread);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pairs[i][t] = multiply_bf16x2(spread[i], multiplier);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    chunks[i] = make_uint4(pairs[i][0], pairs[i][1], pairs[i][2], pairs[i][3]);
}

/// The same of FP8 with its E8M0 scale. A NaN code makes the whole piece NaN: it reaches every
/// output of its key anyway.
__device__ inline void unpack_piece_fp8(
    const uint4& low, const uint4& high, uint32_t scale, uint4 (&chunks)[4]
) {
  const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  uint32_t carries = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    carries |= (words[i] & 0x7f7f7f7fu) + 0x01010101u;
  const uint32_t field = min(scale + (detail::kFp8Bias - kKeyShift), 255u);
  const uint32_t multiplier = (carries & 0x80808080u) != 0 ? 0x7fc07fc0u : multiplier_pair(field);
  uint32_t pairs[4][4];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const uint32_t a = words[2 * t];
    const uint32_t b = words[2 * t + 1];
    pairs[0][t] = multiply_bf16x2(spread_fp8(__byte_perm(a, b, 0x4000)), multiplier);
    pairs[1][t] = multiply_bf16x2(spread_fp8(__byte_perm(a, b, 0x5010)), multiplier);
    pairs[2][t] = multiply_bf16x2(spread_fp8(__byte_perm(a, b, 0x6020)), multiplier);
    pairs[3][t] = multiply_bf16x2(spread_fp8(__byte_perm(a, b, 0x7030)), multiplier);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    chunks[i] = make_uint4(pairs[i][0], pairs[i][1], pairs[i][2], pairs[i][3]);
}

/// Stores the chunks of half `half` of the cell in row `row` of eight. Lanes of eight neighbouring
/// rows hit different banks.
__device__ inline void store_piece(
    unsigned char* rows, int row, int half, const uint4 (&chunks)[4]
) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    *reinterpret_cast<uint4*>(rows + swizzled_offset(row, half * 4 + i)) = chunks[i];
}

/// Unpacks the cell in row lane % 8 of eight where it lies. `column` is its number in the record.
/// All codes are read before anything is written, so that the two pieces need not wait for each
/// other.
__device__ inline void unpack_cell(unsigned char* rows, int lane, int column, bool fp8) {
  const int row = lane % 8;
  const auto codes = [&](int part) {
    const int chunk = codes_chunk(lane / 8, fp8, part);
    return *reinterpret_cast<const uint4*>(rows + swizzled_offset(row, chunk));
  };
  const uint32_t scales = *reinterpret_cast<const uint32_t*>(rows + scales_offset(lane, fp8));
  uint4 chunks[4];
  if (fp8) {
    const uint4 raw[4] = {codes(0), codes(1), codes(2), codes(3)};
    const uint32_t pair = scales >> (column % 2 * 16);
    unpack_piece_fp8(raw[0], raw[1], pair & 0xff, chunks);
    store_piece(rows, row, 0, chunks);
    unpack_piece_fp8(raw[2], raw[3], pair >> 8 & 0xff, chunks);
    store_piece(rows, row, 1, chunks);
  } else {
    const uint4 raw[2] = {codes(0), codes(1)};
    unpack_piece_fp4(raw[0], scales, chunks);
    store_piece(rows, row, 0, chunks);
    unpack_piece_fp4(raw[1], scales >> 16, chunks);
    store_piece(rows, row, 1, chunks);
  }
}

/// Permutes 32 channels from the order of memory into chunks.
__device__ inline void permute_piece(const uint4 (&x)[4], uint4 (&chunks)[4]) {
  uint32_t pairs[4][4];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    pairs[0][t] = __byte_perm(x[t].x, x[t].z, 0x5410);
    pairs[1][t] = __byte_perm(x[t].x, x[t].z, 0x7632);
    pairs[2][t] = __byte_perm(x[t].y, x[t].w, 0x5410);
    pairs[3][t] = __byte_perm(x[t].y, x[t].w, 0x7632);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    chunks[i] = make_uint4(pairs[i][0], pairs[i][1], pairs[i][2], pairs[i][3]);
}

/// Brings the queries of one row into a tile, by kWarps warps: begin() starts copies in the order
/// of memory, permute() brings what this warp copied into the order of tiles, where it lies;
/// finish() waits for the copies before it. Heads that the model does not have become zeros.
template <int kWarps>
class Queries {
 public:
  __device__ Queries(unsigned char* tile, int warp, int lane)
      : tile_(tile), warp_(warp), lane_(lane) {}

  __device__ void begin(const bf16* q, int heads) const {
    const int chunk = warp_ % 4 * 16 + lane_ % 16;
    const int first = warp_ / 4 * 8 + lane_ / 16;
    unsigned char* block = tile_ + chunk / 8 * (kTileBytes / 8);
#pragma unroll 1
    for (int group = first; group < kTileRows; group += kStride) {
#pragma unroll
      for (int head = group; head < group + 8; head += 2) {
        const bool real = head < heads;
        copy_async<16>(
            block + swizzled_offset(head, chunk % 8),
            q + (real ? head : 0) * kTileDim + chunk * kVector,
            real
        );
      }
    }
  }

  __device__ void finish() const {
    commit_copies();
    wait_for_copies<0>();
    permute();
  }

  __device__ void permute() const {
    __syncwarp();
    const int piece = warp_ % 4 * 4 + lane_ / 8;
    unsigned char* block = tile_ + piece / 2 * (kTileBytes / 8);
#pragma unroll 2
    for (int head = warp_ / 4 * 8 + lane_ % 8; head < kTileRows; head += kStride) {
      uint4 x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        x[i] = *reinterpret_cast<uint4*>(block + swizzled_offset(head, piece % 2 * 4 + i));
      uint4 chunks[4];
      permute_piece(x, chunks);
      store_piece(block, head, piece % 2, chunks);
    }
    fence_async_proxy();
  }

 private:
  static constexpr int kStride = kWarps * 2;  // four warps take the pieces of eight heads

  unsigned char* tile_;
  int warp_;
  int lane_;
};

}  // namespace di::ops::cuda
