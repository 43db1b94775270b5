// OpEvents: when each op of a pass ended on the device. For traces and benchmarks.
#pragma once

#include <vector>

#include "ops/cuda/graph.h"
#include "ops/observed.h"

namespace di::ops::cuda {

/// An observer that puts a mark into the stream behind every op. The device works through a stream
/// in order, so an op took from the mark before its own to its own; that the processor enqueues
/// slower than the device works shows as time of the next op.
class OpEvents final : public OpObserver {
 public:
  /// The end of an op, or of what was in the stream before the first one.
  struct Mark {
    const char* op = "";
    int64_t rows = 0;
    Event end;
  };

  /// Watches `backend`, a table of a device, on `stream` from what it holds now on.
  OpEvents(const OpTable& backend, cudaStream_t stream);

  void on_op(const OpSpan& span) override { mark(span.op, span.rows); }

  /// The beginning, then one mark for each op.
  const std::vector<Mark>& marks() const { return marks_; }

 private:
  void mark(const char* op, int64_t rows);

  cudaStream_t stream_;
  std::vector<Mark> marks_;
};

}  // namespace di::ops::cuda
