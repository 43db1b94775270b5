// Activations in the forms that the kernels multiply: made once for a call, used by every tile.
#pragma once

#include "ops/cpu/kernels.h"
#include "tensor/number_formats.h"

namespace di::ops::cpu {

/// Bytes of a quantised row of `cols` columns in one of the forms; a multiple of 64. A row is its
/// blocks of 32 columns, in order.
int64_t q8_row_bytes(Q8Form form, int64_t cols);

/// Bytes of a row of doubles, a multiple of 64.
int64_t double_row_bytes(int64_t cols);

/// A bf16 row as double [cols, padded with zeros to a multiple of 32].
void prepare_double(const bf16* x, int64_t cols, std::byte* out);

}  // namespace di::ops::cpu
