#include "ops/cuda/shapes.h"

#include <fmt/format.h>

#include "base/error.h"

namespace di::ops::cuda {

void need_multiple(const char* what, int64_t found, int64_t factor) {
  if (found % factor == 0) return;
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("cuda: {} is {}, it must be a multiple of {}", what, found, factor)
  );
}

void need_equal(const char* what, int64_t found, int64_t expected) {
  if (found == expected) return;
  throw Error(
      ErrorCode::kUnsupported, fmt::format("cuda: {} is {}, it must be {}", what, found, expected)
  );
}

void need_at_most(const char* what, int64_t found, int64_t most) {
  if (found <= most) return;
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("cuda: {} is {}, it may be at most {}", what, found, most)
  );
}

}  // namespace di::ops::cuda
