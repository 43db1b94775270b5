// A progress bar on a terminal; silence everywhere else.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace di::cli {

/// What makes progress.
enum class ProgressUnit { kBytes, kTokens };

/// "Loading  [#####     ]  50 %  1.5 of 3.0 GB  2.0 GB/s", or with "1500 of 3000 tokens  200
/// tokens/s"; `seconds` have passed so far.
std::string progress_line(
    const std::string& title,
    int64_t done,
    int64_t total,
    double seconds,
    ProgressUnit unit = ProgressUnit::kBytes
);

/// Draws one line over itself while something runs, and wipes it at the end. Draws nothing when
/// `out` is no terminal.
///
/// Thread: one at a time.
class ProgressBar {
 public:
  explicit ProgressBar(
      std::string title, ProgressUnit unit = ProgressUnit::kBytes, std::FILE* out = stderr
  );
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Redraws, at most ten times a second; cheap otherwise.
  void update(int64_t done, int64_t total);

 private:
  using Clock = std::chrono::steady_clock;

  std::string title_;
  ProgressUnit unit_;
  std::FILE* out_;  // nullptr when silent
  Clock::time_point start_;
  Clock::time_point next_;
};

}  // namespace di::cli
