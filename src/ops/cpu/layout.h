// The cpu backend's form of a weight matrix: tiles of 16 rows, interleaved so that one vector
// register holds the same columns of all rows and no kernel ever sums across a register. The same
// for all instruction sets.
//
// A tile of a matrix with b = ⌈cols / 32⌉ column blocks, rows beyond the matrix and columns beyond
// the last filled with zeros:
//   FP4   b × [4 groups of 8 columns][16 rows][4 bytes], byte j = columns j (low nibble) and j + 4;
//         then b × [16 rows] E8M0
//   FP8   b × [8 groups of 4 columns][16 rows][4 bytes]; then b × E8M0 (the rows share a scale);
//         then b × one byte: 1 when a weight of the block is no multiple of 2^-6 before scaling
//   BF16, F32   [columns, padded to 32][16 rows]
// Tiles start at multiples of 64 bytes.
#pragma once

#include "ops/exec.h"
#include "ops/weight.h"

namespace di::ops::cpu {

/// Bytes of one tile.
int64_t tile_bytes(WeightFormat format, int64_t cols);

/// OpTable::packed_bytes.
int64_t packed_bytes(WeightFormat format, int64_t rows, int64_t cols);

/// OpTable::pack.
void pack(const Weight& raw, RowRange rows, std::byte* packed);

}  // namespace di::ops::cpu
