// What an op may use besides its arguments: threads and scratch memory, a queue, and who watches.
#pragma once

#include "base/thread_pool.h"
#include "tensor/arena.h"

namespace di::ops {

class OpObserver;

/// Handed to every op. One op runs at a time on one Exec.
struct Exec {
  ThreadPool& pool;
  Arena& scratch;                  ///< an op gives back what it takes before it returns
  OpObserver* observer = nullptr;  ///< told of every op of its own table (ops/observed.h)
  Stream stream = nullptr;         ///< where a device's ops enqueue themselves
};

/// An Exec with scratch and a queue of its own, for the ops of one memory.
class OwnedExec {
 public:
  OwnedExec(ThreadPool& pool, const Memory& memory)
      : stream_(memory.make_stream()),
        scratch_(memory),
        exec_{pool, scratch_, nullptr, stream_.get()} {}

  Exec& operator*() { return exec_; }
  Exec* operator->() { return &exec_; }

 private:
  std::shared_ptr<CUstream_st> stream_;
  Arena scratch_;
  Exec exec_;
};

/// A half-open range of rows; the unit in which backends split work that is independent by row.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
};

}  // namespace di::ops
