// The linear kernel's launches, a function for each weight format (linear_variants.cuh).
#pragma once

#include "ops/cuda/linear_args.h"
#include "ops/exec.h"

namespace di::ops::cuda {

/// Rows of codes that the kernel expands by itself; more are expanded by a kernel before it.
inline constexpr int kMostCodeRows = 16;

/// Tokens up to which slices are units of their own: a second kernel then adds their sums.
inline constexpr int kFewTokens = 64;

/// The product of `args` for its bf16 activations.
template <WeightFormat kFormat>
void run_rows(Exec& exec, const LinearArgs& args);

/// The product of `args` for its Q8 activations, up to kMostCodeRows rows.
template <WeightFormat kFormat>
void run_codes(Exec& exec, const LinearArgs& args);

extern template void run_rows<WeightFormat::kFp4>(Exec&, const LinearArgs&);
extern template void run_rows<WeightFormat::kFp8>(Exec&, const LinearArgs&);
extern template void run_rows<WeightFormat::kBf16>(Exec&, const LinearArgs&);
extern template void run_codes<WeightFormat::kFp4>(Exec&, const LinearArgs&);
extern template void run_codes<WeightFormat::kFp8>(Exec&, const LinearArgs&);

}  // namespace di::ops::cuda
