// Mailbox: how news reach Python from the engine's thread without that thread ever touching Python.
//
// The engine's thread leaves news here and signals a file descriptor; an event loop, or a thread in
// poll(), then fetches all of it at once. News of one request that nobody fetched are one piece, so
// a slow reader costs no memory beyond the request's own output.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "outputs.h"

namespace di::python {

/// Thread: all members may be called from any thread.
class Mailbox {
 public:
  /// `whole`: requests are handed out once, when they are finished. Throws Error{kIo}.
  explicit Mailbox(bool whole);
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;

  /// Readable while there is something to take.
  int fd() const { return fd_; }

  /// Announces a request; before its first news.
  void expect(const RequestOutput& empty);

  /// Adds news of an announced request; those of another are dropped.
  void push(const engine::Output& news);

  /// What there is, in the order in which it became ready. Does not wait.
  std::vector<RequestOutput> take();

 private:
  struct Entry {
    RequestOutput output;
    bool ready = false;
  };

  const bool whole_;
  const int fd_;
  std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  std::vector<std::string> ready_;
};

}  // namespace di::python
