// Linear layers that owe less than ours: what the cpu backend's matrix kernels could be if a row's
// bits were free to depend on the instruction set, or on the other rows as well. For comparison
// only (invariance_bench).
//
// It reads the same packed weights, so that it waits for the same bytes, and multiplies bf16 pairs
// with the processor's own instruction (AVX-512 BF16), twice the products of an fp32 multiply-add.
// Sums are fp32.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/exec.h"
#include "ops/linear.h"

namespace di::bench {

/// Whether this processor has what free_linear() needs.
bool has_free_linear();

/// In which order a row's products are added.
enum class SumOrder {
  kFree,   ///< as suits the number of rows: four sums with one row, to hide the instruction's
           ///< latency, two with two or three, one with more
  kFixed,  ///< two sums, always: a row has the same bits whatever the other rows
};

/// y = x · Wᵀ, rounded to bf16. `x` [rows, w.cols] and `y` [rows, w.rows] are row-major; w.cols is
/// a multiple of 32; `w` is packed by the cpu backend, in FP8, FP4 or BF16.
struct FreeLinear {
  bf16* y = nullptr;
  const bf16* x = nullptr;
  int64_t rows = 0;
  ops::Weight w;
  SumOrder order = SumOrder::kFree;
};
void free_linear(ops::Exec& exec, const FreeLinear& op);

/// Quantised activations as the bf16 numbers that they are (exact).
std::vector<bf16> dequantised(const ops::Q8View& x);

}  // namespace di::bench
