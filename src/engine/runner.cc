#include "engine/runner.h"

#include <chrono>
#include <utility>

namespace di::engine {
namespace {

/// Between two looks at a step that runs on a device. New orders end the pause at once.
constexpr std::chrono::microseconds kPollPause(20);

}  // namespace

Runner::Runner(std::unique_ptr<Device> device)
    : device_(std::move(device)), thread_([this] { run(); }) {}

Runner::~Runner() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Runner::submit(StepInputs inputs) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(std::move(inputs));
  }
  changed_.notify_all();
}

StepResult Runner::collect() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !results_.empty(); });
  StepResult result = std::move(results_.front());
  results_.pop_front();
  return result;
}

void Runner::run() {
  int64_t launched = 0;  // and not collected
  bool at_once = false;
  std::unique_lock lock(mutex_);
  while (true) {
    if (!orders_.empty() && device_->takes_another()) {
      StepInputs inputs = std::move(orders_.front());
      orders_.pop_front();
      lock.unlock();
      inputs.at_once = at_once;
      device_->launch(std::move(inputs));
      ++launched;
      lock.lock();
    } else if (launched > 0 && (!device_->takes_another() || device_->done())) {
      lock.unlock();
      StepResult result = device_->collect();
      --launched;
      at_once = true;
      lock.lock();
      results_.push_back(std::move(result));
      changed_.notify_all();
    } else if (launched > 0) {
      changed_.wait_for(lock, kPollPause);
    } else if (closing_ && orders_.empty()) {
      return;
    } else {
      at_once = false;
      changed_.wait(lock, [&] { return closing_ || !orders_.empty(); });
    }
  }
}

}  // namespace di::engine
