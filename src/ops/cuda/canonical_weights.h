// Weights of the canonical arithmetic: as the checkpoint has them, in the device's memory. Plain
// kernels read them value by value, so no other order would help them.
#pragma once

#include "ops/exec.h"
#include "ops/weight.h"

namespace di::ops::cuda::canonical {

/// OpTable::packed_bytes: codes, and scales behind them at a multiple of 16 bytes; 0 for formats
/// without scales, which need no form of their own.
int64_t packed_bytes(WeightFormat format, int64_t rows, int64_t cols);

/// OpTable::pack: from the machine's memory to the device's; returns like cuda::pack. Thread: any,
/// on disjoint rows.
void pack(const Weight& raw, RowRange rows, std::byte* packed);

/// Where the scales of a packed matrix begin; nullptr for formats without.
const uint8_t* scales_of(const Weight& packed);

}  // namespace di::ops::cuda::canonical
