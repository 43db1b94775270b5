// OpTimer: how long each op of a backend took since the last reset.
#pragma once

#include <string>
#include <vector>

#include "ops/observed.h"

namespace di::bench {

/// Time spent in one op.
struct OpTime {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;
};

/// Adds up the time of every op that it observes. Thread: one at a time.
class OpTimer : public ops::OpObserver {
 public:
  using OpObserver::OpObserver;

  void on_op(const ops::OpSpan& span) override;

  /// Forgets all times.
  void reset() { times_.clear(); }

  /// Ops that were called, the longest first.
  std::vector<OpTime> times() const;

 private:
  std::vector<OpTime> times_;
};

}  // namespace di::bench
