// The site kernels: mixes, collapse, norm and Q8. Used by mhc.cu alone, for the sizes of
// has_site_kernel() (mhc_fn.h).
#pragma once

#include "ops/exec.h"
#include "ops/mhc.h"

namespace di::ops::cuda {

/// All of `op`, whose fn is packed; with x empty the mixes alone.
void run_site_kernel(Exec& exec, const MhcSite& op);

}  // namespace di::ops::cuda
