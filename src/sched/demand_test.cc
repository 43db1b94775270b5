// Expected memory, checked against counting step by step.
#include "sched/demand.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "base/math.h"
#include "cache/layout.h"

namespace di::sched {
namespace {

using cache::kBlockTokens;

// The most blocks at once, step by step; a sequence gives its blocks back after its last step.
int64_t counted_peak(const std::vector<Demand>& demands, int64_t fixed) {
  int64_t longest = 0;
  for (const Demand& demand : demands)
    longest = std::max(longest, demand.growth);
  int64_t peak = 0;
  for (int64_t step = 0; step <= longest; ++step) {
    int64_t blocks = fixed;
    for (const Demand& demand : demands) {
      if (demand.growth < step) continue;
      blocks += ceil_div(demand.tokens + step, kBlockTokens) - demand.shared_blocks;
    }
    peak = std::max(peak, blocks);
  }
  return peak;
}

TEST(PeakDemand, IsWhatCountingStepByStepFinds) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    std::vector<Demand> demands(static_cast<std::size_t>(1 + below(12)));
    for (Demand& demand : demands) {
      demand.tokens = 1 + below(700);
      demand.growth = below(2) == 0 ? below(5) : below(600);
      if (below(4) == 0)
        demand.shared_blocks = below(static_cast<uint32_t>(demand.tokens / 128 + 1));
    }
    const int64_t fixed = below(5);
    PeakDemand peak(demands, fixed);
    EXPECT_EQ(peak.num_blocks(), counted_peak(demands, fixed));
    const Demand another{1 + below(500), below(300), 0};
    peak.add(another);
    demands.push_back(another);
    EXPECT_EQ(peak.num_blocks(), counted_peak(demands, fixed));
    peak.remove(demands.front());
    demands.erase(demands.begin());
    EXPECT_EQ(peak.num_blocks(), counted_peak(demands, fixed));
  }
}

TEST(PeakDemand, OfNothingIsWhatIsFixed) {
  EXPECT_EQ(PeakDemand({}, 0).num_blocks(), 0);
  EXPECT_EQ(PeakDemand({}, 3).num_blocks(), 3);
}

TEST(OutputForecast, ExpectsEverythingBeforeItSawAnything) {
  const OutputForecast forecast(10'000);
  EXPECT_EQ(forecast.expected_more(0, 500), 500);
  EXPECT_EQ(forecast.expected_more(400, 500), 100);
}

TEST(OutputForecast, LearnsTheMeanOfThoseThatWentOnAsLong) {
  OutputForecast forecast(10'000);
  for (int i = 0; i < 200; ++i) {
    forecast.observe_end(100, 1000);
    forecast.observe_end(900, 1000);
  }
  EXPECT_NEAR(static_cast<double>(forecast.expected_more(0, 1000)), 500, 40);
  EXPECT_NEAR(static_cast<double>(forecast.expected_more(500, 1000)), 400, 40);
  EXPECT_EQ(forecast.expected_more(999, 1000), 1);
}

TEST(OutputForecast, GrowsCautiousByLossesAndBoldByWork) {
  OutputForecast forecast(10'000);
  for (int i = 0; i < 200; ++i)
    forecast.observe_end(500, 1000);
  const int64_t neutral = forecast.expected_more(0, 1000);
  forecast.observe_loss(2'000);
  const int64_t cautious = forecast.expected_more(0, 1000);
  EXPECT_GT(cautious, neutral);
  forecast.observe_work(300'000);
  EXPECT_LT(forecast.expected_more(0, 1000), neutral);
  forecast.observe_work(1e9);
  EXPECT_EQ(forecast.expected_more(0, 1000), 1);
}

}  // namespace
}  // namespace di::sched
