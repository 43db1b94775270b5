// Parallel loops whose pieces need memory of their own.
#pragma once

#include <algorithm>
#include <atomic>

#include "base/math.h"
#include "ops/exec.h"

namespace di::ops::cpu {

/// How a loop is cut.
struct Pieces {
  int64_t count = 0;
  int64_t grain = 1;          ///< consecutive pieces that a thread takes at a time
  int64_t scratch_bytes = 0;  ///< that one piece needs
};

/// Calls work(index, scratch) for every index of [0, pieces.count). `scratch` is memory aligned to
/// 64 bytes that no other call uses meanwhile.
template <class Work>
void for_each_with_scratch(Exec& exec, const Pieces& pieces, const Work& work) {
  const Arena::Scope scope(exec.scratch);
  const int64_t takes = ceil_div(pieces.count, pieces.grain);
  const int64_t workers = std::min<int64_t>(exec.pool.num_threads(), takes);
  const int64_t bytes = align_up(pieces.scratch_bytes, 64);
  std::byte* const scratch = exec.scratch.take<std::byte>(workers * bytes);
  std::atomic<int64_t> next{0};
  exec.pool.parallel_for(workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) {
      for (;;) {
        const int64_t first = next.fetch_add(pieces.grain, std::memory_order_relaxed);
        if (first >= pieces.count) break;
        for (int64_t i = first; i < std::min(pieces.count, first + pieces.grain); ++i)
          work(i, scratch + worker * bytes);
      }
    }
  });
}

}  // namespace di::ops::cpu
