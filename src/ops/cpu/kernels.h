// What an instruction set provides to the cpu backend: one kernel for each way to multiply, each
// working on one tile of 16 weight rows. Everything else (threads, loops over tiles and rows,
// rounding to bf16) is written once, in linear.cc and experts.cc.
//
// Files in avx2/, avx512/, ... are compiled for their instruction set. They include this header and
// nothing else of ours: an inline function that they shared with the rest of the program could be
// linked in their version and crash older processors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace di::ops::cpu {

/// Weight rows of a tile. Packed matrices are sequences of tiles (layout.h).
inline constexpr int kTileRows = 16;

/// The most activation rows that a kernel takes at once.
inline constexpr int kMaxRows = 16;

/// 32 columns of an activation row as 8-bit digits, for FP4 weights. With q = Σ_p digits[p] · r^p
/// and r = 128 or 256 as the kernel table says, a column's value is q · unit · 2^(scale − 127);
/// `scale` holds that product of unit and scale, halved because weights count in halves.
struct alignas(64) DigitBlock {
  int8_t digits[3][32];
  float scale;
  int32_t offset;  ///< −12 Σ q: takes back the 12 that kernels add to doubled weights
  int32_t planes;  ///< 2, or 3 when the block needs the finest unit
};

/// 32 columns of an activation row for FP8 weights: the codes' values, and the scale.
struct alignas(64) WideBlock {
  double values[32];
  float scale;
};

/// One call of a kernel: out[i][n] = activation row i times weight row n of the tile, over all
/// columns, in fp32 before the last rounding.
struct TileArgs {
  const std::byte* tile;         ///< packed weights
  int64_t cols;                  ///< columns, before padding
  const std::byte* const* rows;  ///< prepared activation rows, in the kernel's form
  int num_rows;                  ///< 1 ... kMaxRows
  float* out;                    ///< [num_rows][kTileRows]
};

using TileKernel = void (*)(const TileArgs&);

/// The kernels of one instruction set.
struct Kernels {
  const char* isa;
  int digit_bits;          ///< 7 or 8: the radix of DigitBlock is 2^digit_bits
  TileKernel q8_fp4;       ///< LinearQ8, FP4 weights; activations DigitBlock
  TileKernel q8_fp8;       ///< LinearQ8, FP8 weights; activations WideBlock
  TileKernel linear_bf16;  ///< Linear; activations double [columns, padded to 32]
  TileKernel linear_f32;
  TileKernel linear_fp8;
};

extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
extern const Kernels kVnniKernels;

}  // namespace di::ops::cpu
