// The site kernel: mixes, collapse, norm and Q8 of a row in one launch. Used by mhc.cu alone.
#pragma once

#include "ops/exec.h"
#include "ops/mhc.h"

namespace di::ops::cuda {

/// Whether the kernel is made for this hidden size; the others take plain kernels.
bool has_site_kernel(int64_t hidden);

/// All of `op`; with x empty the mixes alone.
void run_site_kernel(Exec& exec, const MhcSite& op);

}  // namespace di::ops::cuda
