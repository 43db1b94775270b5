// Hyper-connections: the mixes of a site, collapse and expand; see ops/mhc.h.
//
// Four streams only. What the mixes of a row sum over is split by the hidden size alone, so that a
// row's bits are the same in every batch.
#pragma once

#include "ops/exec.h"
#include "ops/mhc.h"

namespace di::ops::cuda {

/// Throws Error{kUnsupported} unless there are 4 streams and the hidden size is a multiple of 32;
/// so do the others. The mixes are the same bits as mhc_mix's.
void mhc_site(Exec& exec, const MhcSite& op);

void mhc_mix(Exec& exec, const MhcMix& op);

/// Equals the reference bit by bit.
void mhc_collapse(Exec& exec, const MhcCollapse& op);

/// Equals the reference bit by bit.
void mhc_expand(Exec& exec, const MhcExpand& op);

}  // namespace di::ops::cuda
