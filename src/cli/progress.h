// A progress bar on a terminal; silence everywhere else.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace di::cli {

/// "Loading  [#####     ]  50 %  1.5 of 3.0 GB  2.0 GB/s"; `seconds` have passed so far.
std::string progress_line(
    const std::string& title, int64_t bytes_done, int64_t bytes_total, double seconds
);

/// Draws one line over itself while something runs, and wipes it at the end. Draws nothing when
/// `out` is no terminal.
///
/// Thread: one at a time.
class ProgressBar {
 public:
  explicit ProgressBar(std::string title, std::FILE* out = stderr);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Redraws, at most ten times a second; cheap otherwise.
  void update(int64_t bytes_done, int64_t bytes_total);

 private:
  using Clock = std::chrono::steady_clock;

  std::string title_;
  std::FILE* out_;  // nullptr when silent
  Clock::time_point start_;
  Clock::time_point next_;
};

}  // namespace di::cli
