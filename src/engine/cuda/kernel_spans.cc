#include "engine/cuda/kernel_spans.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

namespace di::engine::cuda {

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
  const TraceRecorder::Track track = trace.track("kernels");
  TraceClock::time_point free_from;
  for (const ops::cuda::KernelSpan& kernel : kernels_.finish()) {
    // A kernel may start early and wait until those before it end: its span begins then.
    const TraceClock::time_point begin = std::max(kernel.start, free_from);
    free_from = kernel.end;
    const auto work = works_.find(kernel.step);
    if (work == works_.end()) continue;
    const std::chrono::nanoseconds early = begin - kernel.start;
    trace.add(
        track,
        {trace.name(kernel.name), begin, kernel.end},
        {{"step", kernel.step},
         {"phase", std::string_view(work->second.phase())},
         {"rows", work->second.prefill_rows + work->second.decode_rows},
         {"blocks", kernel.blocks},
         {"threads", kernel.threads},
         {"early_ns", early.count()}}
    );
  }
}

}  // namespace di::engine::cuda
