// Reading ahead in packed weights. For the files in avx2/, avx512/, ... only.
#pragma once

#include <cstddef>

namespace di::ops::cpu {
namespace {

/// With one or two activation rows a kernel waits for memory. The processor's own prefetchers stop
/// at page borders and start late; 2 KB is about the latency of memory times one core's rate.
inline constexpr int kReadAhead = 2048;

/// Asks for the `bytes` (a multiple of 64) that come kReadAhead behind `at`.
__attribute__((always_inline)) inline void read_ahead(const std::byte* at, int bytes) {
#pragma GCC unroll 8
  for (int line = 0; line < bytes; line += 64)
    __builtin_prefetch(at + kReadAhead + line);
}

}  // namespace
}  // namespace di::ops::cpu
