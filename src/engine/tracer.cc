#include "engine/tracer.h"

#include <cstdio>

#include <fmt/format.h>

#include "base/error.h"

namespace di::engine {
namespace {

constexpr int64_t kMaxSteps = 100000;

}  // namespace

Tracer::~Tracer() {
  if (recorder_ != nullptr) write();
}

void Tracer::start(const std::string& path, int64_t num_steps) {
  if (recorder_ != nullptr) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("a trace is being taken, into {}", path_));
  }
  if (num_steps < 1 || num_steps > kMaxSteps) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("a trace of {} steps is asked for, 1 to {} are possible", num_steps, kMaxSteps)
    );
  }
  auto recorder = std::make_shared<TraceRecorder>(TraceLimits{.num_steps = num_steps});
  recorder->write_file(path);  // now, while the caller can still be told
  path_ = path;
  recorder_ = std::move(recorder);
  track_ = recorder_->track("engine");
}

void Tracer::step_done() {
  if (recorder_ != nullptr && recorder_->step_done()) write();
}

void Tracer::write() {
  recorder_->finish();
  try {
    recorder_->write_file(path_);
  } catch (const Error& error) {
    fmt::print(stderr, "deepinfer: the trace is lost: {}\n", error.what());
  }
  recorder_.reset();
  track_ = {};
}

}  // namespace di::engine
