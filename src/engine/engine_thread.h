// EngineThread: an engine that any number of threads may use. One thread owns the engine and all
// scheduling state; the others reach it through a bounded queue of commands, and get news through
// callbacks or streams.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "engine/engine.h"

namespace di::engine {

/// One request's news, pulled by its client. Holds at most what the request can still say, which
/// max_tokens bounds; a client that is slow or gone hurts nobody.
///
/// Thread: any.
class OutputStream {
 public:
  /// The next news, or nothing after the finished one. Waits.
  std::optional<Output> next();

  /// Adds news; the engine's side.
  void push(Output output);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Output> outputs_;
  bool finished_ = false;
};

/// Thread: all members may be called from any thread.
class EngineThread {
 public:
  /// Told each piece of news on the engine's thread: to be quick, and not to throw.
  using OnOutput = std::function<void(Output)>;

  /// Starts the thread. `max_commands`: commands that may wait for the end of a step.
  explicit EngineThread(std::unique_ptr<Engine> engine, int64_t max_commands = 4096);
  /// As close().
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;

  /// Hands a request over and returns at once. Whatever becomes of it, `on_output` gets exactly one
  /// finished output; a refused request's has finish reason kRefused and says why. With a full
  /// command queue that comes before submit() returns, on the caller's thread.
  void submit(Request request, OnOutput on_output);

  /// As submit(), with the news in a stream.
  std::shared_ptr<OutputStream> stream(Request request);

  /// Ends a request soon. Unknown ids are ignored.
  void abort(const std::string& request_id);

  /// Engine::stats() and Engine::trace() on the engine's thread; waits for the end of a step.
  /// Throws Error{kUnsupported} after close().
  Stats stats();
  void trace(const std::string& path, int64_t num_steps);

  /// Aborts what runs, tells everyone, and ends the thread. May be called again.
  void close();

  /// For what is fixed since the engine is open: options(), config(), tokenizer(), …
  const Engine& engine() const { return *engine_; }

 private:
  using Command = std::function<void()>;

  bool post(Command command);
  void call(const std::function<void()>& work);
  void run();
  void add(Request request, OnOutput on_output);
  void deliver(std::vector<Output> outputs);

  std::unique_ptr<Engine> engine_;
  const int64_t max_commands_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Command> commands_;
  bool closing_ = false;
  std::unordered_map<std::string, OnOutput> listeners_;  // of live requests; the thread's own
  std::thread thread_;
};

}  // namespace di::engine
