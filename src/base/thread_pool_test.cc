#include "base/thread_pool.h"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>

namespace di {
namespace {

TEST(ThreadPool, VisitsEveryIndexOnceWhateverTheGrain) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (const int64_t count : {0, 1, 7, 64, 1000}) {
      for (const int64_t grain : {1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
        pool.parallel_for(count, grain, [&](int64_t begin, int64_t end) {
          EXPECT_LE(end - begin, grain);
          for (int64_t i = begin; i < end; ++i)
            ++visits[static_cast<std::size_t>(i)];
        });
        for (const std::atomic<int>& visit : visits)
          EXPECT_EQ(visit.load(), 1);
      }
    }
  }
}

TEST(ThreadPool, MakesWhatOneLoopWroteVisibleToTheNext) {
  ThreadPool pool(4);
  std::vector<int64_t> values(257, 0);
  for (int round = 0; round < 2000; ++round) {
    pool.parallel_for(static_cast<int64_t>(values.size()), 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        ++values[static_cast<std::size_t>((i * 31 + round) % 257)];
    });
  }
  for (const int64_t value : values)
    EXPECT_EQ(value, 2000);
}

TEST(ThreadPool, UsesAtLeastTheCallerWhenAskedForAllProcessors) {
  EXPECT_GE(ThreadPool().num_threads(), 1);
}

}  // namespace
}  // namespace di
