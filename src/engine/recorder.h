// Recorder: logs an engine's requests and their ends into a file, as record.h has it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/record.h"

namespace di::engine {

/// Writes as things happen. Trouble with the file is told once, on standard error, and ends the
/// record, not the engine.
///
/// Thread: the engine's. Cost: what a request said is kept until its end; a step writes once at
/// most.
class Recorder {
 public:
  /// Creates `path`, readable by its owner alone, and writes the header. `start`: the moment that
  /// times count from. Throws Error{kIo} when the file cannot be made.
  Recorder(const std::string& path, const RecordHeader& header, double start);
  /// Requests that still run have no end in the record.
  ~Recorder();
  Recorder(const Recorder&) = delete;

  /// Logs a taken request, whose seed is resolved.
  void add_request(const Request& request, double now);

  /// Takes in a step's news, logs the ends among them, and brings all to the file.
  void add_news(const std::vector<Output>& news, double now);

 private:
  struct Live {
    int64_t number = 0;
    RecordedRequest recorded;
    std::vector<std::string> texts;  // one a choice
  };

  void add_output(const Output& output, double now);
  void write(const std::string& line);
  void flush();

  std::string path_;
  bool content_;
  double start_;
  std::FILE* file_ = nullptr;  // nullptr once something went wrong
  std::string buffer_;
  int64_t num_requests_ = 0;
  // By id, oldest first: an id may be taken again while the last news of its former request waits.
  std::unordered_map<std::string, std::deque<Live>> live_;
};

}  // namespace di::engine
