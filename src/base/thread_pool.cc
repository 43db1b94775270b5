#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include <sched.h>

#include "base/check.h"

namespace di {
namespace {

/// How long an idle worker polls before it sleeps; longer than the serial gaps inside a step.
constexpr int kSpinRounds = 4000;

int usable_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

void pause_briefly() {
  __builtin_ia32_pause();
}

}  // namespace

struct ThreadPool::State {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<uint64_t> round{0};  // counts loops
  std::atomic<int> active{0};      // workers that have not finished the current loop
  std::atomic<bool> stop{false};

  // The current loop; written before `round` is advanced, read after it was seen to advance.
  const std::function<void(int64_t, int64_t)>* work = nullptr;
  int64_t count = 0;
  int64_t grain = 1;
  std::atomic<int64_t> next{0};

  void run_pieces() {
    for (;;) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      (*work)(begin, std::min(count, begin + grain));
    }
  }

  void worker() {
    uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpinRounds && round.load(std::memory_order_acquire) == seen;
           ++spin) {
        pause_briefly();
      }
      if (round.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return round.load(std::memory_order_acquire) != seen; });
      }
      seen = round.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      run_pieces();
      active.fetch_sub(1, std::memory_order_release);
    }
  }

  void publish() {
    {
      const std::lock_guard lock(mutex);
      round.fetch_add(1, std::memory_order_release);
    }
    wake.notify_all();
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  const int total = num_threads > 0 ? num_threads : usable_processors();
  for (int i = 1; i < total; ++i)
    state_->workers.emplace_back([this] { state_->worker(); });
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_release);
  state_->publish();
  for (std::thread& worker : state_->workers)
    worker.join();
}

int ThreadPool::num_threads() const {
  return static_cast<int>(state_->workers.size()) + 1;
}

void ThreadPool::parallel_for(
    int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& work
) {
  DI_CHECK(grain > 0, "a piece of work has at least one index");
  if (count <= 0) return;
  if (state_->workers.empty() || count <= grain) {
    for (int64_t begin = 0; begin < count; begin += grain)
      work(begin, std::min(count, begin + grain));
    return;
  }
  state_->work = &work;
  state_->count = count;
  state_->grain = grain;
  state_->next.store(0, std::memory_order_relaxed);
  state_->active.store(static_cast<int>(state_->workers.size()), std::memory_order_relaxed);
  state_->publish();
  state_->run_pieces();
  while (state_->active.load(std::memory_order_acquire) != 0)
    pause_briefly();
}

}  // namespace di
