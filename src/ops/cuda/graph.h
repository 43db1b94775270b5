// Graph: a recorded stretch of a stream, played with one call.
#pragma once

#include <functional>
#include <memory>

#include <cuda_runtime_api.h>

namespace di::ops::cuda {

/// What was enqueued while it was recorded, with its addresses and sizes.
///
/// Thread: one at a time.
class Graph {
 public:
  /// Records what `enqueue` puts on `stream` without running it. It may neither allocate nor wait;
  /// every kernel in it must have run once before. Throws Error{kUnsupported}.
  static Graph record(cudaStream_t stream, const std::function<void()>& enqueue);

  /// Records and forgets: for what `enqueue` takes and checks on its way.
  static void rehearse(cudaStream_t stream, const std::function<void()>& enqueue);

  /// Enqueues the stretch on `stream`.
  void play(cudaStream_t stream) const;

  /// Takes the device's memory for it now instead of when it is first played.
  void upload(cudaStream_t stream) const;

 private:
  explicit Graph(cudaGraphExec_t executable);

  std::shared_ptr<CUgraphExec_st> executable_;
};

/// A point in a stream that the processor can ask for.
class Event {
 public:
  Event();

  /// Marks the end of what `stream` holds now.
  void record(cudaStream_t stream);
  /// Whether all before the mark is done; an error counts as done.
  bool done() const;
  /// Returns when it is done. Throws Error{kUnsupported} with CUDA's reason when the device failed.
  void wait() const;
  /// Seconds from `start`'s mark to this one; both are done.
  double seconds_since(const Event& start) const;

 private:
  std::shared_ptr<CUevent_st> event_;
};

}  // namespace di::ops::cuda
