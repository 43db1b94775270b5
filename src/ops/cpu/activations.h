// Activations in the forms that the kernels multiply: made once for a call, used by every tile.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/linear.h"

namespace di::ops::cpu {

/// Bytes of one prepared row of `cols` columns; a multiple of 64.
int64_t digit_row_bytes(int64_t cols);
int64_t wide_row_bytes(int64_t cols);
int64_t double_row_bytes(int64_t cols);

/// A quantised row as DigitBlock [cols / 32], for FP4 weights. `digit_bits`: see Kernels.
void prepare_digits(
    const uint8_t* codes, const uint8_t* scales, int64_t cols, int digit_bits, std::byte* out
);

/// A quantised row as WideBlock [cols / 32], for FP8 weights.
void prepare_wide(const uint8_t* codes, const uint8_t* scales, int64_t cols, std::byte* out);

/// A bf16 row as double [cols, padded with zeros to a multiple of 32].
void prepare_double(const bf16* x, int64_t cols, std::byte* out);

}  // namespace di::ops::cpu
