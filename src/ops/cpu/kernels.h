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
inline constexpr int kMaxRows = 32;

/// 32 columns of a quantised activation row in the form that a kernel multiplies. Every form is
/// exact: an E4M3 value is an integer q in units of 2^-9 with |q| ≤ 448 · 512.
enum class Q8Form {
  kDigits,  ///< DigitBlock
  kWords,   ///< WordBlock
  kDoubles  ///< DoubleBlock
};

/// Bytes. With v = Σ_p digits[p] · r^p and r = 128 or 256 as the instruction set likes, v is q over
/// the block's unit: 1, or the larger unit in which two digits suffice when it divides all q.
struct alignas(64) DigitBlock {
  int8_t digits[3][32];
  int32_t planes;         ///< 2, or 3 when the block needs unit 1
  int32_t fp4_offset;     ///< −12 Σ v: takes back the 12 that is added to doubled FP4 weights
  int32_t fp8_offset[3];  ///< the same for the digits of FP8 weights (fp8_bytes.h), by plane
  float fp4_scale;        ///< unit · 2^-9 · 2^(scale − 127) / 2, FP4 weights being halves
  float fp8_scale;        ///< unit · 2^-9 · 2^(scale − 127) · 2^-9
};

/// 16-bit words: q = digits[1] · 512 + digits[0].
struct alignas(64) WordBlock {
  int16_t digits[2][32];
  float scale;  ///< 2^-18 · 2^(scale − 127)
};

/// The values themselves, times 2^1000: weights come as the bits of doubles near 2^-1016.
struct alignas(64) DoubleBlock {
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

/// A kernel of LinearQ8 and the form of its activations.
struct Q8Kernel {
  TileKernel run;
  Q8Form form;
};

/// The kernels of one instruction set.
struct Kernels {
  const char* isa;
  /// Makes a quantised row of `cols` columns in one of the forms.
  void (*prepare
  )(Q8Form form, const uint8_t* codes, const uint8_t* scales, int64_t cols, std::byte* out);
  Q8Kernel q8_fp4;       ///< LinearQ8, FP4 weights
  Q8Kernel q8_fp8_few;   ///< LinearQ8, FP8 weights, fewer than fp8_many_rows rows in all
  Q8Kernel q8_fp8_many;  ///< LinearQ8, FP8 weights, more rows: a block is unpacked once for all
  int64_t fp8_many_rows;
  TileKernel linear_bf16;  ///< Linear; activations double [columns, padded to 32]
  TileKernel linear_f32;
  TileKernel linear_fp8;
};

extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
extern const Kernels kVnniKernels;

}  // namespace di::ops::cpu
