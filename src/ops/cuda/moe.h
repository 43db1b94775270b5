// Router and gated activation of the mixture of experts. The experts themselves: experts.h.
#pragma once

#include "ops/exec.h"
#include "ops/moe.h"

namespace di::ops::cuda {

/// Entry `route`. Bit-exact against the reference. A logit that is not a number ranks below every
/// number, so that ids are always k different ones in range. Throws kUnsupported beyond 32 selected
/// or kMaxRoutedExperts experts.
void route(Exec& exec, const Route& op);

/// Entry `swiglu`. Bit-exact against the reference.
void swiglu(Exec& exec, const SwiGlu& op);

/// Most experts that `route` can choose from.
inline constexpr int64_t kMaxRoutedExperts = 2048;

}  // namespace di::ops::cuda
