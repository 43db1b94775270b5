// What the row kernels ask of shapes, checked on the host before anything is launched.
#pragma once

#include <cstdint>

namespace di::ops::cuda {

/// Throws Error{kUnsupported} saying that `what` is `found` and must be a multiple of `factor`,
/// unless it is.
void need_multiple(const char* what, int64_t found, int64_t factor);

/// Throws Error{kUnsupported} saying that `what` is `found` and must be `expected`, unless it is.
void need_equal(const char* what, int64_t found, int64_t expected);

/// Throws Error{kUnsupported} saying that `what` is `found` and may be `most`, unless it fits.
void need_at_most(const char* what, int64_t found, int64_t most);

/// ⌈a / b⌉ for what a grid is made of.
inline unsigned int blocks_of(int64_t a, int64_t b) {
  return static_cast<unsigned int>((a + b - 1) / b);
}

}  // namespace di::ops::cuda
