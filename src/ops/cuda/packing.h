// The packed form of weight matrices that the tensor-core kernels read: blocks of 64 rows and 64
// columns, each one contiguous piece of memory for one bulk copy, whose 16-byte pieces are what one
// thread of a warpgroup needs.
//
// Block (row tile i, column chunk j) is number i · chunks + j, so that a row tile is one stream.
// Rows and columns beyond the matrix are zeros. Inside a block, thread t = 32 · warp + lane of the
// warpgroup (lane = 4 · i + j) holds the A fragments of four products of 16 columns; rows r and
// r + 8 of a fragment are the neighbours 16 · warp + 2i and 16 · warp + 2i + 1 of the matrix, so
// that a thread's results for one token are neighbours too. Fragment registers: wgmma.cuh.
//
//   FP4   16 bytes a thread: word k holds the eight codes of columns [16k, 16k + 16). Then 32
//         words of multipliers: word 8 · warp + i holds column group 0 of both rows, then group 1.
//         2,176 bytes.
//   FP8   two times 16 bytes a thread, 2,048 bytes apart, for two products each: words of registers
//         (0, 1) and (2, 3). Then four multipliers [row half][column group] and 12 bytes of
//         nothing. 4,112 bytes.
//   bf16  four times 16 bytes a thread, 2,048 bytes apart: the registers themselves. 8,192 bytes.
//
// How a word holds its codes, and a byte the power of two that they are multiplied by: unpack.cuh.
#pragma once

#include "ops/exec.h"
#include "ops/weight.h"

namespace di::ops::cuda {

/// Rows and columns of a block.
inline constexpr int kBlockRows = 64;
inline constexpr int kBlockCols = 64;

/// Bytes of one block; 0 for formats without a packed form.
constexpr int block_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFp4: return 2048 + 128;
    case WeightFormat::kFp8: return 4096 + 16;
    case WeightFormat::kBf16: return 8192;
    case WeightFormat::kF32: return 0;
  }
  return 0;
}

/// Blocks along the rows and along the columns of a matrix. Chunks come in pairs, since kernels
/// step by 128 columns; the last one may hold zeros only.
constexpr int64_t row_tiles(int64_t rows) {
  return (rows + kBlockRows - 1) / kBlockRows;
}
constexpr int64_t column_chunks(int64_t cols) {
  return (cols + 2 * kBlockCols - 1) / (2 * kBlockCols) * 2;
}

/// OpTable::packed_bytes: of the packed form; for kF32 see mhc_fn.h.
int64_t packed_bytes(WeightFormat format, int64_t rows, int64_t cols);

/// OpTable::pack: from the machine's memory to the device's. Returns when the rows are in place, or
/// while weights are loaded when they were read (staging.h, which keeps buffers until the end).
/// Thread: any, on disjoint rows.
void pack(const Weight& raw, RowRange rows, std::byte* packed);

}  // namespace di::ops::cuda
