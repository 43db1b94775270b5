// The load engine: nothing dropped, nothing done twice, errors passed on.
#include "checkpoint/loader.h"

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace di::checkpoint {
namespace {

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  return bytes;
}

TEST(Loader, CopiesEveryByteOfEveryJob) {
  ThreadPool pool(3);
  for (const std::size_t size : {0, 1, 4095, 1 << 20, (9 << 20) + 7}) {
    const auto source = pattern(3 * size);
    std::vector<std::byte> copy(3 * size);
    std::vector<LoadJob> jobs;
    for (const std::size_t part : {2, 0, 1}) {
      jobs.push_back(
          copy_job(std::span(source).subspan(part * size, size), copy.data() + part * size)
      );
    }
    run_load_jobs(std::move(jobs), pool);
    EXPECT_EQ(copy, source);
  }
}

TEST(Loader, CallsEachUnitOnce) {
  ThreadPool pool(3);
  const auto source = pattern(40 << 20);
  for (const int64_t units : {1, 2, 7, 1000, 12345}) {
    std::vector<std::atomic<int>> calls(static_cast<std::size_t>(units));
    const auto count = [&calls](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        ++calls[static_cast<std::size_t>(i)];
    };
    run_load_jobs({{{std::span(source)}, units, count}}, pool);
    for (const auto& n : calls)
      EXPECT_EQ(n, 1);
  }
}

TEST(Loader, RunsJobsInTheOrderOfTheirBytes) {
  ThreadPool one_thread(1);
  const auto source = pattern(3);
  std::vector<int> order;
  std::vector<LoadJob> jobs;
  for (const int i : {2, 0, 1}) {
    jobs.push_back({{std::span(source).subspan(i, 1)}, 1, [&order, i](int64_t, int64_t) {
                      order.push_back(i);
                    }});
  }
  run_load_jobs(std::move(jobs), one_thread);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

TEST(Loader, ReportsRisingProgressThatEndsAtTheTotal) {
  ThreadPool pool(3);
  const auto source = pattern((30 << 20) + 5);
  std::vector<std::byte> copy(source.size());
  int64_t last = 0;
  int64_t calls = 0;
  run_load_jobs({copy_job(std::span(source), copy.data())}, pool, [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, static_cast<int64_t>(source.size()));
    last = done;
    ++calls;
  });
  EXPECT_EQ(last, static_cast<int64_t>(source.size()));
  EXPECT_GT(calls, 5);
}

TEST(Loader, PassesTheFirstErrorOnAndStops) {
  ThreadPool pool(2);
  const auto source = pattern(1);
  std::atomic<int> ran{0};
  std::vector<LoadJob> jobs;
  jobs.reserve(1000);
  for (int i = 0; i < 1000; ++i) {
    jobs.push_back({{std::span(source)}, 1, [&ran, i](int64_t, int64_t) {
                      ++ran;
                      if (i == 3) throw std::runtime_error("broken scale");
                    }});
  }
  EXPECT_THROW(run_load_jobs(std::move(jobs), pool), std::runtime_error);
  EXPECT_GE(ran, 4);
}

TEST(Loader, HasNothingToDoForNoJobs) {
  ThreadPool pool(2);
  run_load_jobs({}, pool);
}

}  // namespace
}  // namespace di::checkpoint
