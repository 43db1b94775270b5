#include "engine/cuda/step_trace.h"

#include <utility>

namespace di::engine::cuda {

DeviceClock::DeviceClock(cudaStream_t stream) {
  origin_.record(stream);
  origin_.wait();
  time_ = TraceClock::now();
}

TraceClock::time_point DeviceClock::time_of(const ops::cuda::Event& event) const {
  const std::chrono::duration<double> since(event.seconds_since(origin_));
  return time_ + std::chrono::duration_cast<TraceClock::duration>(since);
}

StepTrace::StepTrace(
    const StepInputs& inputs,
    std::shared_ptr<DeviceTrace> device,
    const ops::OpTable& backend,
    cudaStream_t stream
)
    : trace_(inputs.trace),
      device_(std::move(device)),
      events_(backend, stream),
      work_{inputs.step} {
  for (const SequenceOrder& order : inputs.sequences) {
    const bool decodes = order.rows.start >= order.rows.prompt_tokens;
    (decodes ? work_.decode_rows : work_.prefill_rows) += order.rows.num_rows;
  }
}

void StepTrace::write(const ops::cuda::Event& start, const ops::cuda::Event& end) const {
  const TraceRecorder::Track track = trace_->track("device");
  const DeviceClock& clock = device_->clock;
  trace_->add(
      track,
      {work_.phase(), clock.time_of(start), clock.time_of(end)},
      {{"step", work_.step},
       {"prefill_rows", work_.prefill_rows},
       {"decode_rows", work_.decode_rows}}
  );
  const auto& marks = events_.marks();
  for (std::size_t i = 1; i < marks.size(); ++i) {
    trace_->add(
        track,
        {marks[i].op, clock.time_of(marks[i - 1].end), clock.time_of(marks[i].end)},
        {{"rows", marks[i].rows}}
    );
  }
  device_->kernels.add(work_);
}

}  // namespace di::engine::cuda
