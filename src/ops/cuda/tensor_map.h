// Descriptors of tensors in device memory for the copy engine (tensor loads).
#pragma once

#include <cstdint>

#include <cuda.h>

namespace di::ops::cuda {

/// Describes bf16 [rows, groups, cols] at `data` for loads of boxes of `box_rows` rows and
/// `box_cols` columns of one group: 64, swizzled as wgmma.cuh reads them, or 32, whose rows of 64
/// bytes have piece p of row r in place p ^ r / 2 mod 4. What lies outside arrives as zeros. `data`
/// is aligned to 16 bytes and `cols` a multiple of 8. Throws Error{kUnsupported} when the driver
/// refuses.
CUtensorMap bf16_tile_map(
    const void* data, int64_t rows, int64_t groups, int64_t cols, int box_rows, int box_cols = 64
);

}  // namespace di::ops::cuda
