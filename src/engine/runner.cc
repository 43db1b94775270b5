#include "engine/runner.h"

#include <utility>

namespace di::engine {

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
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !orders_.empty(); });
    if (orders_.empty()) return;
    const StepInputs inputs = std::move(orders_.front());
    orders_.pop_front();
    lock.unlock();
    StepResult result = device_->run(inputs);
    lock.lock();
    results_.push_back(std::move(result));
    changed_.notify_all();
  }
}

}  // namespace di::engine
