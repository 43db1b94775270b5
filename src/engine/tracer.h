// Tracer: takes a trace of some steps of an engine and writes it to a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/trace.h"

namespace di::engine {

/// At most one trace at a time. Thread: the engine's.
class Tracer {
 public:
  Tracer() = default;
  /// Writes what a trace has so far.
  ~Tracer();
  Tracer(const Tracer&) = delete;

  /// Records the next `num_steps` steps into `path`. Throws Error{kInvalidArgument} when a trace is
  /// being taken or num_steps is out of range, Error{kIo} when the file cannot be written.
  void start(const std::string& path, int64_t num_steps);

  /// Counts a step; writes the file after the last one.
  void step_done();

  /// The recorder, or nullptr: what a TraceScope wants.
  TraceRecorder* recorder() const { return recorder_.get(); }
  std::shared_ptr<TraceRecorder> shared() const { return recorder_; }
  /// The engine thread's track.
  TraceRecorder::Track track() const { return track_; }

 private:
  void write();

  std::string path_;
  std::shared_ptr<TraceRecorder> recorder_;  // shared with the steps in flight
  TraceRecorder::Track track_;
};

}  // namespace di::engine
