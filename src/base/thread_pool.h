// Compute threads that split a range. Results never depend on how many there are: a piece of work
// is a pure function of its indices.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace di {

/// A fixed set of threads for data-parallel loops. The caller takes part as one of them.
///
/// Thread: one caller at a time; work must not call the pool again and must not throw.
class ThreadPool {
 public:
  /// Starts `num_threads - 1` workers. 0 means one for each processor this process may use.
  explicit ThreadPool(int num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  /// Calls work(begin, end) over disjoint pieces that cover [0, count), at most `grain` indices
  /// each, handed out dynamically; returns when all are done.
  /// Cost: a few microseconds while workers still spin, tens after they slept.
  void parallel_for(
      int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& work
  );

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace di
