#include "bench/timed_ops.h"

#include <algorithm>
#include <chrono>

namespace di::bench {

void OpTimer::on_op(const ops::OpSpan& span) {
  const auto is_of_op = [&](const OpTime& time) { return time.name == span.op; };
  auto time = std::find_if(times_.begin(), times_.end(), is_of_op);
  if (time == times_.end()) time = times_.insert(times_.end(), {.name = span.op});
  ++time->calls;
  time->seconds += std::chrono::duration<double>(span.end - span.start).count();
}

std::vector<OpTime> OpTimer::times() const {
  std::vector<OpTime> sorted = times_;
  std::sort(sorted.begin(), sorted.end(), [](const OpTime& a, const OpTime& b) {
    return a.seconds > b.seconds;
  });
  return sorted;
}

}  // namespace di::bench
