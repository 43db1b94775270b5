// TracedOps: writes every op of a backend as a span of a trace.
#pragma once

#include "base/trace.h"
#include "ops/observed.h"

namespace di::ops {

/// An observer whose spans go to one track, each with its rows. The recorder outlives it.
class TracedOps : public OpObserver {
 public:
  TracedOps(const OpTable& backend, TraceRecorder& trace, TraceRecorder::Track track)
      : OpObserver(backend), trace_(trace), track_(track) {}

  void on_op(const OpSpan& span) override {
    trace_.add(track_, {span.op, span.start, span.end}, {{"rows", span.rows}});
  }

 private:
  TraceRecorder& trace_;
  TraceRecorder::Track track_;
};

}  // namespace di::ops
