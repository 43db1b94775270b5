// The linears of the cuda backend: one streaming kernel on bf16 tensor cores for all formats and
// row counts. Weights are unpacked in registers; see docs/kernels/cuda_linears.md.
#pragma once

#include "ops/cuda/packing.h"
#include "ops/linear.h"

namespace di::ops::cuda {

/// How a matrix' columns are cut into slices, and the slices grouped to parts. Every kernel sums a
/// slice in one chain of tensor-core products, adds the slices of a part in ascending order, and
/// then the parts, so the bits depend on the matrix' size alone.
struct KSlices {
  int chunks = 1;  ///< blocks of 64 columns in a slice, even; the last slice may have fewer
  int count = 1;
  int part = 1;  ///< slices in a part; the last part may have fewer
};

/// Of a matrix with so many rows and columns.
KSlices k_slices(int64_t rows, int64_t cols);

/// For benchmarks of what one text costs: while it lives, this thread cuts every matrix into slices
/// of `chunks` blocks, an even number. Bits then depend on who calls.
class OtherSlices {
 public:
  explicit OtherSlices(int chunks);
  ~OtherSlices();
  OtherSlices(const OtherSlices&) = delete;
};

/// OpTable::linear_q8 for packed kFp8 and kFp4 weights.
void linear_q8(Exec& exec, const LinearQ8& op);

/// OpTable::linear for packed kFp8 and kBf16 weights.
void linear(Exec& exec, const Linear& op);

/// OpTable::linear_set, for what those two take: one launch for all products of few rows.
void linear_set(Exec& exec, const LinearSet& op);

}  // namespace di::ops::cuda
