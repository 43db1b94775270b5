// One product as the kernels of the linears see it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <vector_types.h>

#include "ops/weight.h"
#include "tensor/number_formats.h"

namespace di::ops::cuda {

/// One product, as all CTAs see it.
struct LinearArgs {
  const std::byte* weights;
  WeightFormat format;
  const uint8_t* codes;   ///< Q8 activations [tokens, cols], or nullptr
  const uint8_t* scales;  ///< [tokens, cols / 32]
  const bf16* x;          ///< activations [tokens, groups, x_cols] when there are no codes
  int x_cols;             ///< `cols`, rounded up to 8 with zeros
  bf16* y;                ///< [tokens, rows], or nullptr
  float* y_f32;           ///< [tokens, rows], or nullptr
  uint8_t* y_codes;       ///< [tokens, rows]: y in Q8, or nullptr
  uint8_t* y_scales;      ///< [tokens, rows / 32]
  float y_factor;
  float unscale;  ///< puts back the powers of two of unpacking
  int tokens, rows, cols;
  int chunks;                    ///< of the packed form
  int slices, slice_chunks;      ///< KSlices
  int parts, part_slices;        ///< KSlices
  int pieces, piece_slices;      ///< units along the columns of a tile, and the slices of one
  float4* partial;               ///< sums of the pieces (partial_place), if there are several
  int groups, group_rows;        ///< Linear::groups, and the rows of one
  int first_tile, last_row;      ///< this launch's share of the rows, if there is one group
  int group_tiles;               ///< row tiles that a group touches, rounded up to whole CTAs
  int token_tiles, token_block;  ///< token tiles, and how many of them stay together
  int units;
  bool stores_tiles;  ///< bf16 results leave as whole tiles, by tensor stores
};

}  // namespace di::ops::cuda
