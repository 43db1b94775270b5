#include "engine/engine_thread.h"

#include <algorithm>
#include <future>
#include <utility>

namespace di::engine {
namespace {

Output refused(const Request& request, const std::string& message) {
  Output output;
  output.request_id = request.id;
  output.num_prompt_tokens = std::ssize(request.prompt_token_ids);
  output.finished = true;
  // The number of choices may be what was refused.
  const int64_t num_choices = std::clamp<int64_t>(request.sampling.n, 1, sampling::kMaxChoices);
  for (int64_t index = 0; index < num_choices; ++index) {
    output.choices.push_back(
        {.index = index, .finish_reason = FinishReason::kRefused, .message = message}
    );
  }
  return output;
}

}  // namespace

std::optional<Output> OutputStream::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_ || !outputs_.empty(); });
  if (outputs_.empty()) return std::nullopt;
  Output output = std::move(outputs_.front());
  outputs_.pop_front();
  return output;
}

void OutputStream::push(Output output) {
  {
    const std::lock_guard lock(mutex_);
    finished_ = finished_ || output.finished;
    outputs_.push_back(std::move(output));
  }
  changed_.notify_all();
}

EngineThread::EngineThread(std::unique_ptr<Engine> engine, int64_t max_commands)
    : engine_(std::move(engine)), max_commands_(max_commands), thread_([this] { run(); }) {}

EngineThread::~EngineThread() {
  close();
}

void EngineThread::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool EngineThread::post(Command command) {
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || std::ssize(commands_) >= max_commands_) return false;
    commands_.push_back(std::move(command));
  }
  changed_.notify_all();
  return true;
}

void EngineThread::submit(Request request, OnOutput on_output) {
  auto shared = std::make_shared<std::pair<Request, OnOutput>>(std::move(request), on_output);
  const bool posted =
      post([this, shared] { add(std::move(shared->first), std::move(shared->second)); });
  if (!posted) {
    on_output(refused(shared->first, "the engine is closed or its command queue is full"));
  }
}

std::shared_ptr<OutputStream> EngineThread::stream(Request request) {
  auto stream = std::make_shared<OutputStream>();
  submit(std::move(request), [stream](Output output) { stream->push(std::move(output)); });
  return stream;
}

void EngineThread::abort(const std::string& request_id) {
  // An abort may not be lost to a full queue: it is what empties it.
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    commands_.push_back([this, request_id] { engine_->abort(request_id); });
  }
  changed_.notify_all();
}

void EngineThread::call(const std::function<void()>& work) {
  auto task = std::make_shared<std::packaged_task<void()>>(work);
  std::future<void> done = task->get_future();
  if (!post([task] { (*task)(); })) {
    throw Error(ErrorCode::kUnsupported, "the engine is closed or its command queue is full");
  }
  done.get();
}

Stats EngineThread::stats() {
  Stats stats;
  call([&] { stats = engine_->stats(); });
  return stats;
}

void EngineThread::trace(const std::string& path, int64_t num_steps) {
  call([&] { engine_->trace(path, num_steps); });
}

void EngineThread::add(Request request, OnOutput on_output) {
  const std::string id = request.id;
  const Request echo{.id = id, .sampling = {.n = request.sampling.n}};
  if (auto refusal = engine_->add(std::move(request))) {
    on_output(refused(echo, refusal->message));
    return;
  }
  listeners_[id] = std::move(on_output);
}

void EngineThread::deliver(std::vector<Output> outputs) {
  for (Output& output : outputs) {
    const auto found = listeners_.find(output.request_id);
    if (found == listeners_.end()) continue;
    if (!output.finished) {
      found->second(std::move(output));
      continue;
    }
    const OnOutput on_output = std::move(found->second);
    listeners_.erase(found);
    on_output(std::move(output));
  }
}

void EngineThread::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !commands_.empty() || engine_->has_work(); });
    std::deque<Command> commands = std::exchange(commands_, {});
    const bool closing = closing_;
    lock.unlock();
    for (const Command& command : commands)
      command();
    if (closing) break;
    if (engine_->has_work()) deliver(engine_->step());
    lock.lock();
  }
  std::vector<std::string> ids;
  for (const auto& [id, listener] : listeners_)
    ids.push_back(id);
  for (const std::string& id : ids)
    engine_->abort(id);
  deliver(engine_->flush());
}

}  // namespace di::engine
