#include "ops/cuda/op_events.h"

namespace di::ops::cuda {

OpEvents::OpEvents(const OpTable& backend, cudaStream_t stream)
    : OpObserver(backend), stream_(stream) {
  mark("", 0);
}

void OpEvents::mark(const char* op, int64_t rows) {
  marks_.push_back({op, rows, Event()});
  marks_.back().end.record(stream_);
}

}  // namespace di::ops::cuda
