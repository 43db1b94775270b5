// KernelSpans: the kernels of a traced engine's steps, each with its step's phase and rows.
#pragma once

#include <cstdint>
#include <map>

#include "base/trace.h"
#include "ops/cuda/kernel_trace.h"

namespace di::engine::cuda {

/// What a step computed.
struct StepWork {
  int64_t step = 0;
  int64_t prefill_rows = 0;
  int64_t decode_rows = 0;

  /// "prefill", "decode" or both.
  const char* phase() const;
};

/// Watches the device for one trace.
///
/// Thread: the one that runs the device, which also ends the trace.
class KernelSpans {
 public:
  /// Begins. Where kernels cannot be seen, the trace and standard error say why.
  explicit KernelSpans(TraceRecorder& trace);

  const ops::cuda::KernelTrace& kernels() const { return kernels_; }

  /// Tells of a step that is done.
  void add(const StepWork& work) { works_[work.step] = work; }

  /// Ends, and writes the kernels of the steps that are done on the track "kernels": each from the
  /// end of the one before it at the earliest, and how long before that it started.
  void write(TraceRecorder& trace);

 private:
  ops::cuda::KernelTrace kernels_;
  std::map<int64_t, StepWork> works_;  // by step
};

}  // namespace di::engine::cuda
