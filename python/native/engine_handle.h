// EngineHandle: the engine as Python holds it: open, then closed once, from whatever thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine_thread.h"
#include "mailbox.h"
#include "options.h"

namespace di::python {

/// An answer split into its parts.
struct ParsedAnswer {
  std::string reasoning;
  std::string content;
  Json tool_calls = Json::Array{};  ///< objects with name and arguments, a JSON text
};

/// Functions throw Error{kUnsupported} after close(), except where they say otherwise.
///
/// Thread: any.
class EngineHandle {
 public:
  /// Opens an engine and starts its thread. Takes as long as loading the model.
  explicit EngineHandle(const ResolvedOptions& options);

  /// Throws what Engine::add would refuse `request` for, given an empty queue.
  void check(const engine::Request& request) const;

  /// Hands over a request whose news go to `mailbox`. Exactly one finished output will come, also
  /// after close().
  void submit(const engine::Request& request, std::shared_ptr<Mailbox> mailbox) const;

  /// Ends a request soon; nothing happens for an unknown one, or after close().
  void abort(const std::string& request_id) const;

  /// Ends what runs, tells everyone, and gives all memory back. Waits for the step in flight. May
  /// be called again.
  void close();

  /// For a process that was forked: lets go of the engine, whose threads only the parent has.
  void abandon();

  engine::Stats stats() const;
  void trace(const std::string& path, int64_t num_steps) const;

  /// The ids of text that may spell added tokens; and back.
  std::vector<int32_t> encode(std::string_view text) const;
  std::string decode(const std::vector<int32_t>& ids, bool skip_special) const;

  /// The prompt of a conversation in the neutral form, for the chat format called `format`.
  std::vector<int32_t> encode_conversation(const Json& conversation, const std::string& format)
      const;
  /// What the model wrote behind that prompt.
  ParsedAnswer parse_answer(const Json& conversation, const std::string& text) const;

  /// What is fixed: the options as they are in force, notes about them, and facts of the model.
  Json describe() const;

 private:
  std::shared_ptr<engine::EngineThread> thread() const;

  const std::vector<std::string> notes_;
  mutable std::mutex mutex_;
  std::shared_ptr<engine::EngineThread> thread_;
};

}  // namespace di::python
