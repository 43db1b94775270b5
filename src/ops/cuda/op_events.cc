#include "ops/cuda/op_events.h"

#include "ops/cuda/cuda_ops.h"

namespace di::ops::cuda {

OpEvents::OpEvents(cudaStream_t stream) : OpObserver(cuda_ops()), stream_(stream) {
  mark("", 0);
}

void OpEvents::mark(const char* op, int64_t rows) {
  marks_.push_back({op, rows, Event()});
  marks_.back().end.record(stream_);
}

}  // namespace di::ops::cuda
