// An op table that measures another one: how long each op took since the last reset.
#pragma once

#include <string>
#include <vector>

#include "ops/ops.h"

namespace di::bench {

/// Time spent in one op.
struct OpTime {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;
};

/// A table whose entries run `table`'s and add up their time. The sums are the process's: one timed
/// table at a time.
const ops::OpTable& timed_ops(const ops::OpTable& table);

/// Forgets all times.
void reset_op_times();

/// Ops that were called, the longest first.
std::vector<OpTime> op_times();

}  // namespace di::bench
