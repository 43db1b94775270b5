// The clock of an engine: arrivals, deadlines and everything in its statistics.
#pragma once

#include <chrono>

namespace di::engine {

/// Seconds of the steady clock.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace di::engine
