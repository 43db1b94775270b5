// Parallel loops whose pieces need memory of their own.
#pragma once

#include <algorithm>
#include <atomic>

#include "base/math.h"
#include "ops/exec.h"

namespace di::ops::cpu {

/// Calls work(index, scratch) for every index of [0, count), handed out one by one. `scratch` is
/// `scratch_bytes` of memory, aligned to 64 bytes, that no other call uses meanwhile.
template <class Work>
void for_each_with_scratch(Exec& exec, int64_t count, int64_t scratch_bytes, const Work& work) {
  const Arena::Scope scope(exec.scratch);
  const int64_t workers = std::min<int64_t>(exec.pool.num_threads(), count);
  const int64_t bytes = align_up(scratch_bytes, 64);
  std::byte* const scratch = exec.scratch.take<std::byte>(workers * bytes);
  std::atomic<int64_t> next{0};
  exec.pool.parallel_for(workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) {
      for (;;) {
        const int64_t index = next.fetch_add(1, std::memory_order_relaxed);
        if (index >= count) break;
        work(index, scratch + worker * bytes);
      }
    }
  });
}

}  // namespace di::ops::cpu
