// Repeated timing. The best sample is what the machine can do; the median says how calm it was.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace di::bench {

struct Times {
  double best_s = 0;
  double median_s = 0;
};

/// How long to repeat a measurement.
struct Patience {
  double seconds = 0.4;  ///< in all; short samples on a shared machine find calm moments
  int least_samples = 5;
};

/// Calls `work` once to warm up, then as `patience` says.
template <class Work>
Times time_calls(const Patience& patience, Work&& work) {
  work();
  std::vector<double> seconds;
  double total = 0;
  while (static_cast<int>(seconds.size()) < patience.least_samples || total < patience.seconds) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    seconds.push_back(elapsed.count());
    total += seconds.back();
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2]};
}

}  // namespace di::bench
