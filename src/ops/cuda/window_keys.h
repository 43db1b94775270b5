// From raw keys to window records in one launch; see ops/attention.h.
#pragma once

#include "ops/attention.h"
#include "ops/exec.h"

namespace di::ops::cuda {

/// The bits of rms_norm, rope and window_records one after the other, and of rms_norm for the
/// queries. Throws Error{kUnsupported}
/// unless dim is a multiple of 32 and at most 1,024, and its rotated part one of 8.
void window_keys(Exec& exec, const WindowKeys& op);

}  // namespace di::ops::cuda
