#include "engine/cuda/kernel_spans.h"

#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace di::engine::cuda {

namespace {

/// Tracks for spans that come by their start and overlap, since a kernel may start while the one
/// before it ends: a span is on the first track that is free by then.
class Lanes {
 public:
  explicit Lanes(TraceRecorder& trace) : trace_(trace) { add(); }

  TraceRecorder::Track take(TraceClock::time_point start, TraceClock::time_point end) {
    std::size_t lane = 0;
    while (free_from_[lane] > start)
      if (++lane == free_from_.size()) add();
    free_from_[lane] = end;
    return tracks_[lane];
  }

 private:
  void add() {
    const std::size_t number = tracks_.size() + 1;
    tracks_.push_back(
        trace_.track(number == 1 ? "kernels" : fmt::format("kernels, overlapping {}", number))
    );
    free_from_.emplace_back();
  }

  TraceRecorder& trace_;
  std::vector<TraceRecorder::Track> tracks_;
  std::vector<TraceClock::time_point> free_from_;
};

}  // namespace

const char* StepWork::phase() const {
  return prefill_rows == 0 ? "decode" : decode_rows == 0 ? "prefill" : "prefill and decode";
}

KernelSpans::KernelSpans(TraceRecorder& trace) {
  if (kernels_.missing().empty()) return;
  trace.note("kernels", "none: " + kernels_.missing());
  fmt::print(stderr, "deepinfer: the trace names no kernels: {}\n", kernels_.missing());
}

void KernelSpans::write(TraceRecorder& trace) {
  if (!kernels_.missing().empty()) return;
  Lanes lanes(trace);
  for (const ops::cuda::KernelSpan& kernel : kernels_.finish()) {
    const auto work = works_.find(kernel.step);
    if (work == works_.end()) continue;
    trace.add(
        lanes.take(kernel.start, kernel.end),
        {trace.name(kernel.name), kernel.start, kernel.end},
        {{"step", kernel.step},
         {"phase", std::string_view(work->second.phase())},
         {"rows", work->second.prefill_rows + work->second.decode_rows},
         {"blocks", kernel.blocks},
         {"threads", kernel.threads}}
    );
  }
}

}  // namespace di::engine::cuda
