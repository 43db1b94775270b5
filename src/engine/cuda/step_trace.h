// StepTrace: what one step did on the device, for a trace.
#pragma once

#include <memory>

#include "base/trace.h"
#include "engine/cuda/kernel_spans.h"
#include "engine/step_inputs.h"
#include "ops/cuda/op_events.h"

namespace di::engine::cuda {

/// Where the device's clock stands on the processor's.
class DeviceClock {
 public:
  /// Waits for the device once, so that both clocks are read together.
  explicit DeviceClock(cudaStream_t stream);

  TraceClock::time_point time_of(const ops::cuda::Event& event) const;

 private:
  ops::cuda::Event origin_;
  TraceClock::time_point time_;
};

/// What the steps of one trace share.
struct DeviceTrace {
  DeviceTrace(TraceRecorder& trace, cudaStream_t stream) : kernels(trace), clock(stream) {}

  KernelSpans kernels;
  const DeviceClock clock;
};

/// From launch to collect of a traced step. On the track "device", steps that are played from a
/// recording show as one span; in others every op is seen. Kernels are on a track of their own.
class StepTrace {
 public:
  /// Of a step on `stream` whose pass runs on `backend`.
  StepTrace(
      const StepInputs& inputs,
      std::shared_ptr<DeviceTrace> device,
      const ops::OpTable& backend,
      cudaStream_t stream
  );

  /// The observer of a pass that is enqueued op by op.
  ops::cuda::OpEvents& events() { return events_; }

  /// Adds the spans of a step that is done, from `start` to `end`, on the track "device".
  void write(const ops::cuda::Event& start, const ops::cuda::Event& end) const;

 private:
  std::shared_ptr<TraceRecorder> trace_;
  std::shared_ptr<DeviceTrace> device_;
  ops::cuda::OpEvents events_;
  StepWork work_;
};

}  // namespace di::engine::cuda
