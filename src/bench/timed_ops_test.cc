#include "bench/timed_ops.h"

#include <gtest/gtest.h>

namespace di::bench {
namespace {

ops::OpSpan span_of(const char* op, int milliseconds) {
  const std::chrono::steady_clock::time_point start{};
  return {.op = op, .start = start, .end = start + std::chrono::milliseconds(milliseconds)};
}

TEST(OpTimer, AddsUpEachOpUntilItIsReset) {
  OpTimer timer(ops::ref_ops());
  timer.on_op(span_of("rope", 2));
  timer.on_op(span_of("linear", 30));
  timer.on_op(span_of("rope", 4));
  const std::vector<OpTime> times = timer.times();
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].name, "linear") << "the longest comes first";
  EXPECT_EQ(times[1].name, "rope");
  EXPECT_EQ(times[1].calls, 2);
  EXPECT_DOUBLE_EQ(times[1].seconds, 0.006);
  timer.reset();
  EXPECT_TRUE(timer.times().empty());
}

}  // namespace
}  // namespace di::bench
