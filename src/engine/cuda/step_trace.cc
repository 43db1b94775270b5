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
    const StepInputs& inputs, std::shared_ptr<const DeviceClock> clock, cudaStream_t stream
)
    : trace_(inputs.trace), clock_(std::move(clock)), events_(stream), step_(inputs.step) {
  for (const SequenceOrder& order : inputs.sequences) {
    const bool decodes = order.rows.start >= order.rows.prompt_tokens;
    (decodes ? decode_rows_ : prefill_rows_) += order.rows.num_rows;
  }
}

void StepTrace::write(const ops::cuda::Event& start, const ops::cuda::Event& end) const {
  const TraceRecorder::Track track = trace_->track("device");
  const char* phase = prefill_rows_ == 0  ? "decode"
                      : decode_rows_ == 0 ? "prefill"
                                          : "prefill and decode";
  trace_->add(
      track,
      {phase, clock_->time_of(start), clock_->time_of(end)},
      {{"step", step_}, {"prefill_rows", prefill_rows_}, {"decode_rows", decode_rows_}}
  );
  const auto& marks = events_.marks();
  for (std::size_t i = 1; i < marks.size(); ++i) {
    trace_->add(
        track,
        {marks[i].op, clock_->time_of(marks[i - 1].end), clock_->time_of(marks[i].end)},
        {{"rows", marks[i].rows}}
    );
  }
}

}  // namespace di::engine::cuda
