// OpObserver: sees every op that runs, for benchmarks and traces. It has an op table of its own,
// whose entries run the backend's and then tell the observer; who is not observed pays nothing.
#pragma once

#include <chrono>

#include "ops/ops.h"

namespace di::ops {

/// One op that ran.
struct OpSpan {
  const char* op = nullptr;  ///< the name of the entry in OpTable; lives as long as the program
  std::chrono::steady_clock::time_point start;
  std::chrono::steady_clock::time_point end;
  int64_t rows = 0;  ///< that the op computed; entries of the compressor's stores, one for each
                     ///< head of quantize_mxfp4
};

/// Watches the ops of one backend. To use it, give table() in place of the backend's and set
/// Exec::observer to the observer:
///
///   exec.observer = &observer;
///   forward(model, step, cache, observer.table(), exec);
///
/// Thread: on_op is called on the thread that called the op. One observer may watch several Execs
/// when its on_op can be called from several threads.
class OpObserver {
 public:
  /// `backend` outlives the observer.
  explicit OpObserver(const OpTable& backend);
  virtual ~OpObserver() = default;
  OpObserver(const OpObserver&) = delete;
  OpObserver& operator=(const OpObserver&) = delete;

  /// The observed table. Its ops may only run with an Exec whose observer is this one.
  const OpTable& table() const { return table_; }
  const OpTable& backend() const { return backend_; }

  /// Told of each op after it ran.
  virtual void on_op(const OpSpan& span) = 0;

 private:
  const OpTable& backend_;
  OpTable table_;
};

}  // namespace di::ops
