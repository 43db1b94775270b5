// Comparing tensors, and how far each may lie from its golden value. The numbers are those of the
// model fixtures' README, sections 5 and 6; reasons in docs/numerics.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "verify/report.h"

namespace di::verify {

/// Which tolerances apply.
enum class Strictness {
  kExact,      ///< canonical arithmetic: equal, but for the last bits of fp32 tensors
  kIsolated,   ///< a fast backend, every layer fed with golden inputs
  kFreeShort,  ///< a fast backend running freely over at most two windows
  kFreeLong,   ///< the same beyond two windows, where flips of selections accumulate
};

/// Floats in rows of `width`. `kind` names the tensor without its layer, such as "prefill.h_out".
TensorCheck compare_floats(
    const std::string& name,
    const std::string& kind,
    std::span<const float> ours,
    std::span<const float> expected,
    int64_t width,
    Strictness strictness
);

/// Codes and ids.
TensorCheck compare_integers(
    const std::string& name,
    const std::string& kind,
    std::span<const int64_t> ours,
    std::span<const int64_t> expected,
    Strictness strictness
);

}  // namespace di::verify
