// The mixes of a site in the arithmetic of the reference; collapse and expand have its bits anyway.
#pragma once

#include "ops/exec.h"
#include "ops/mhc.h"

namespace di::ops::cuda::canonical {

/// OpTable::mhc_mix: the projection is `linear`'s. Throws Error{kUnsupported} unless there are 4
/// streams.
void mhc_mix(Exec& exec, const MhcMix& op);

/// OpTable::mhc_site: mixes, collapse and norm one after another. Throws as they do.
void mhc_site(Exec& exec, const MhcSite& op);

}  // namespace di::ops::cuda::canonical
