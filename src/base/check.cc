#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace di {

void check_failed(const char* condition, const char* file, int line, const char* why) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s (%s)\n", file, line, why, condition);
  std::abort();
}

}  // namespace di
