// Products for a few tokens, several of them in one launch: what a decode step of one or a few
// sequences runs. The kernel: linear_narrow.cuh.
#pragma once

#include <span>

#include "ops/cuda/linear_args.h"
#include "ops/exec.h"

namespace di::ops::cuda {

/// Whether the narrow kernel takes this product; otherwise linear_variants.h does.
bool is_narrow(const LinearArgs& args);

/// Whether the narrow kernel can give the Q8 form of such a result, too.
bool narrow_gives_q8(const LinearArgs& args);

/// Runs products that do not depend on each other, all of them narrow.
void run_narrow(Exec& exec, std::span<const LinearArgs> products);

}  // namespace di::ops::cuda
