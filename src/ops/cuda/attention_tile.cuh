// Records of 512 channels on their way into the bf16 tiles that the tensor cores read.
//
// A piece is 32 channels of a key or head: 64 bytes of a tile. Inside it the channels are permuted:
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

/// A key's address with its format in the lowest bit; 0: no key.
using PackedKey = uint64_t;
__device__ inline PackedKey pack_key(const Key& key) {
  if (key.record == nullptr) return 0;
  return reinterpret_cast<uint64_t>(key.record) | (key.fp8 ? 1 : 0);
}

/// Bytes of one piece as they come from memory.
struct RawPiece {
  uint4 codes[2];  // FP4 uses the first
  uint32_t scale;  // FP4: two E4M3; FP8: one E8M0, and kFp8Mark
};
inline constexpr uint32_t kFp8Mark = 1u << 31;

__device__ inline RawPiece load_piece(PackedKey key, int piece) {
  RawPiece raw = {};
  if (key == 0) return raw;
  const auto* record = reinterpret_cast<const uint8_t*>(key & ~PackedKey{1});
  if ((key & 1) != 0) {
    const auto* codes = reinterpret_cast<const uint4*>(record + piece * 32);
    raw.codes[0] = codes[0];
    raw.codes[1] = codes[1];
    raw.scale = record[kTileDim + piece] | kFp8Mark;
  } else {
    raw.codes[0] = *reinterpret_cast<const uint4*>(record + piece * 16);
    raw.scale = *reinterpret_cast<const uint16_t*>(record + kTileDim / 2 + piece * 2);
  }
  return raw;
}

/// Bits of two E4M3 codes, in bytes 1 and 3, as bf16 of 2^-120 of their values.
__device__ inline uint32_t spread_fp8(uint32_t x) {
  return (x & 0x80008000u) | (x >> 4 & 0x07f007f0u);
}

/// Codes i and i + 4 of a word of E2M1 as bf16 of 2^-126 of their values.
template <int i>
__device__ inline uint32_t spread_fp4(uint32_t q) {
  const uint32_t signs = q << (12 - 4 * i);
  const uint32_t rest = i < 2 ? q << (6 - 4 * i) : q >> (4 * i - 6);
  return (signs & 0x80008000u) | (rest & 0x01c001c0u);
}

/// The four 16-byte chunks of a piece of FP4.
__device__ inline void unpack_piece_fp4(const RawPiece& raw, uint4 (&chunks)[4]) {
  // E4M3 scales, subnormal ones too: 2^-120 · 2^120 · 2^(126 - kKeyShift).
  const uint32_t scales = multiply_bf16x2(
      multiply_bf16x2(spread_fp8(__byte_perm(raw.scale, 0, 0x1404)), 0x7b807b80u),
      multiplier_pair(127 + 126 - kKeyShift)
  );
  const uint32_t first = __byte_perm(scales, 0, 0x1010);
  const uint32_t second = __byte_perm(scales, 0, 0x3232);
  const uint32_t words[4] = {raw.codes[0].x, raw.codes[0].y, raw.codes[0].z, raw.codes[0].w};
  uint32_t pairs[4][4];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const uint32_t multiplier = t < 2 ? first : second;
    pairs[0][t] = multiply_bf16x2(spread_fp4<0>(words[t]), multiplier);
    pairs[1][t] = multiply_bf16x2(spread_fp4<1>(words[t]), multiplier);
    pairs[2][t] = multiply_bf16x2(spread_fp4<2>(words[t]), multiplier);
    pairs[3][t] = multiply_bf16x2(spread_fp4<3>(words[t]), multiplier);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    chunks[i] = make_uint4(pairs[i][0], pairs[i][1], pairs[i][2], pairs[i][3]);
}

/// The same of FP8. A NaN code makes the whole piece NaN: it reaches every output of its key
/// anyway.
__device__ inline void unpack_piece_fp8(const RawPiece& raw, uint4 (&chunks)[4]) {
  const uint32_t words[8] = {
      raw.codes[0].x,
      raw.codes[0].y,
      raw.codes[0].z,
      raw.codes[0].w,
      raw.codes[1].x,
      raw.codes[1].y,
      raw.codes[1].z,
      raw.codes[1].w};
  uint32_t carries = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    carries |= (words[i] & 0x7f7f7f7fu) + 0x01010101u;
  const uint32_t field = min((raw.scale & 0xff) + (detail::kFp8Bias - kKeyShift), 255u);
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

/// Stores the chunks of a piece into row `row` of a column block (128 bytes a row); `half` tells
/// which half of the row. Lanes of eight neighbouring rows hit different banks.
__device__ inline void store_piece(
    unsigned char* block, int row, int half, const uint4 (&chunks)[4]
) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    *reinterpret_cast<uint4*>(block + swizzled_offset(row, half * 4 + i)) = chunks[i];
}

/// Unpacks a piece of a key into its place.
__device__ inline void place_piece(unsigned char* block, int row, int half, const RawPiece& raw) {
  uint4 chunks[4];
  if ((raw.scale & kFp8Mark) != 0) {
    unpack_piece_fp8(raw, chunks);
  } else {
    unpack_piece_fp4(raw, chunks);
  }
  store_piece(block, row, half, chunks);
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
/// of memory, finish() waits for this warp's and permutes them in place. Heads that the model does
/// not have become zeros.
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
        copy_async(
            block + swizzled_offset(head, chunk % 8),
            q + (real ? head : 0) * kTileDim + chunk * kVector,
            real
        );
      }
    }
  }

  __device__ void finish() const {
    asm volatile("cp.async.wait_all;" ::: "memory");
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

  /// Sixteen bytes; zeros when there is nothing to copy.
  __device__ static void copy_async(unsigned char* to, const bf16* from, bool real) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from),
                 "r"(real ? 16 : 0)
                 : "memory");
  }

  unsigned char* tile_;
  int warp_;
  int lane_;
};

}  // namespace di::ops::cuda
