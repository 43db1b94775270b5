// What the control promises, on a made-up machine whose truth is known: adaptive drafts are never
// much slower than none, and nearly as fast as the best constant number known in hindsight. In a
// world's time everything is repeatable: nothing here is timed.
#include "sched/draft_world.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include <gtest/gtest.h>

namespace di::sched {
namespace {

using Costs = std::function<double(double rows, double now)>;

/// Rows cost little: a device that waits for its memory.
double flat(double rows, double) {
  return 0.010 + 0.0001 * rows;
}
/// Rows cost the same each: a busy processor.
double linear(double rows, double) {
  return 0.002 + 0.010 * rows;
}
/// First rows cost most, since each brings experts of its own: 6 of 384.
double experts(double rows, double) {
  return 0.004 + 0.16 * (1 - std::pow(1 - 6.0 / 384, rows)) + 0.00005 * rows;
}
/// Rows cost by the eight, as recorded sizes do.
double stairs(double rows, double) {
  return 0.010 + 0.004 * std::ceil(rows / 8);
}

DraftWorld make_world(const Costs& costs, int64_t sequences, double quality) {
  DraftWorld world;
  world.backbone = costs;
  world.drafting_base = 0.1 * costs(1, 0);
  world.drafting_each = 0.002 * costs(1, 0);
  world.load = [sequences](double) { return sequences; };
  world.quality = [quality](double) { return quality; };
  return world;
}

/// How adaptive drafts did.
struct Score {
  double to_off = 0;   // tokens a second over those without drafts
  double to_best = 0;  // and over those of the best constant number of drafts
};

Score score(const DraftWorld& world, double seconds) {
  constexpr int64_t kDrafts = 5;
  constexpr uint32_t kSeed = 2;
  const double off = run_world(world, {}, seconds, kSeed).rate();
  double best = off;
  for (int64_t k = 1; k <= kDrafts; ++k)
    best = std::max(best, run_world(world, {DraftMode::kStatic, k}, seconds, kSeed).rate());
  const WorldResult adaptive = run_world(world, {DraftMode::kAdaptive, kDrafts}, seconds, kSeed);
  EXPECT_LE(adaptive.known, adaptive.running);
  return {adaptive.rate() / off, adaptive.rate() / best};
}

void expect_good(const DraftWorld& world, double seconds, double to_best, const std::string& what) {
  const Score found = score(world, seconds);
  EXPECT_GE(found.to_off, 0.98) << what;
  EXPECT_GE(found.to_best, to_best) << what;
}

/// Seconds that hold so many steps of a full batch.
double seconds_of(const DraftWorld& world, double steps) {
  return steps * world.backbone(static_cast<double>(world.load(0)), 0);
}

std::string name_of(const char* costs, int64_t sequences, double quality) {
  return std::string(costs) + ", " + std::to_string(sequences) + " sequences, quality " +
         std::to_string(quality);
}

constexpr double kQualities[] = {0.05, 0.3, 0.6, 0.85};

TEST(DraftWorld, FlatCosts) {
  for (const int64_t n : {1, 4, 16}) {
    for (const double quality : kQualities) {
      const DraftWorld world = make_world(flat, n, quality);
      expect_good(world, seconds_of(world, 8000), 0.95, name_of("flat", n, quality));
    }
  }
}

TEST(DraftWorld, RowsThatCostTheSameEach) {
  for (const int64_t n : {1, 4, 16}) {
    for (const double quality : kQualities) {
      const DraftWorld world = make_world(linear, n, quality);
      expect_good(world, seconds_of(world, 8000), 0.95, name_of("linear", n, quality));
    }
  }
}

TEST(DraftWorld, Experts) {
  for (const int64_t n : {1, 4, 16}) {
    for (const double quality : kQualities) {
      DraftWorld world = make_world(experts, n, quality);
      expect_good(world, seconds_of(world, 6000), 0.92, name_of("experts", n, quality));
      world.lagged = true;
      expect_good(world, seconds_of(world, 6000), 0.95, name_of("experts, lagged", n, quality));
    }
  }
}

TEST(DraftWorld, Stairs) {
  for (const int64_t n : {1, 4, 16}) {
    for (const double quality : kQualities) {
      DraftWorld world = make_world(stairs, n, quality);
      expect_good(world, seconds_of(world, 10000), 0.90, name_of("stairs", n, quality));
      world.lagged = true;
      expect_good(world, seconds_of(world, 10000), 0.95, name_of("stairs, lagged", n, quality));
    }
  }
}

TEST(DraftWorld, CostsThatFlip) {
  for (const int64_t n : {1, 8}) {
    const Costs costs = [](double rows, double now) {
      return std::fmod(now, 100) < 50 ? flat(rows, now) : linear(rows, now);
    };
    const DraftWorld world = make_world(costs, n, 0.6);
    expect_good(world, 400, 0.95, name_of("flips", n, 0.6));
  }
}

// Others use the machine: its speed changes again and again, which changes nothing for drafts.
TEST(DraftWorld, AMachineThatOthersUseToo) {
  for (const double quality : {0.05, 0.6}) {
    const Costs costs = [](double rows, double now) {
      constexpr double kFactors[] = {1, 2.2, 1.3, 3.1, 1, 1.7, 2.6};
      return linear(rows, now) * kFactors[static_cast<int64_t>(now / 5) % 7];
    };
    DraftWorld world = make_world(costs, 1, quality);
    world.noise = 0.1;
    expect_good(world, 400, 0.95, name_of("others", 1, quality));
  }
}

TEST(DraftWorld, DraftsThatAreGoodAtTimes) {
  for (const int64_t n : {1, 8}) {
    DraftWorld world = make_world(flat, n, 0);
    world.quality = [](double now) { return std::fmod(now, 100) < 50 ? 0.8 : 0.03; };
    world.drafting_base = 0.004;
    expect_good(world, 400, 0.95, name_of("at times", n, 0));
  }
}

TEST(DraftWorld, ALoadThatJumps) {
  DraftWorld world = make_world(
      [](double rows, double) {
        return rows < 16 ? 0.010 + 0.0001 * rows : 0.0116 + 0.001 * (rows - 16);
      },
      1,
      0.6
  );
  world.load = [](double now) -> int64_t { return std::fmod(now, 20) < 10 ? 2 : 40; };
  expect_good(world, 400, 0.95, "jumps");
}

TEST(DraftWorld, DraftingThatCostsMoreThanItsStep) {
  DraftWorld world = make_world(linear, 1, 0.6);
  world.drafting_base = 0.05;
  expect_good(world, 400, 0.95, "dear drafts");
}

TEST(DraftWorld, MuchNoise) {
  for (const auto& costs : {Costs(flat), Costs(linear)}) {
    DraftWorld world = make_world(costs, 4, 0.6);
    world.noise = 0.2;
    world.hiccups = 0.01;
    expect_good(world, seconds_of(world, 8000), 0.93, "noise");
  }
}

TEST(DraftWorld, ConfidencesThatLieNeverCostMuch) {
  for (const auto& costs : {Costs(flat), Costs(linear), Costs(experts)}) {
    for (const double shift : {-2.0, 2.0}) {
      DraftWorld world = make_world(costs, 8, 0.3);
      world.overconfidence = shift;
      expect_good(world, seconds_of(world, 6000), 0.94, "shift " + std::to_string(shift));
    }
  }
}

TEST(DraftWorld, ADeviceThatDoesNotTellWhatDraftingTakes) {
  for (const auto& costs : {Costs(flat), Costs(linear)}) {
    for (const double quality : {0.05, 0.6}) {
      DraftWorld world = make_world(costs, 4, quality);
      world.tells_drafting = false;
      expect_good(world, seconds_of(world, 8000), 0.93, "untold");
    }
  }
}

TEST(DraftWorld, ResultsThatComeTwoStepsLate) {
  for (const double quality : {0.05, 0.85}) {
    DraftWorld world = make_world(flat, 4, quality);
    world.lag = 3;
    expect_good(world, seconds_of(world, 6000), 0.95, "late");
  }
}

TEST(DraftWorld, ShortRunsDoNotPayForWhatEarlierOnesFoundOut) {
  for (const double quality : {0.05, 0.6}) {
    DraftWorld world = make_world(linear, 1, quality);
    double off = 0, adaptive = 0, forgetful = 0;  // tokens
    for (uint32_t run = 0; run < 40; ++run) {
      const double seconds = seconds_of(world, 100);
      off += run_world(world, {}, seconds, run).rate();
      const WorldResult result = run_world(world, {DraftMode::kAdaptive, 5}, seconds, run);
      adaptive += result.rate();
      DraftWorld anew = world;
      anew.known.verdicts.clear();
      forgetful += run_world(anew, {DraftMode::kAdaptive, 5}, seconds, run).rate();
      world.known = result.learnt;
    }
    EXPECT_GE(adaptive / off, 0.98) << quality;
    EXPECT_LT(forgetful / off, 0.98) << quality;
  }
}

TEST(DraftWorld, ATextThatDraftsWellIsFoundOutInSpiteOfAnOldVerdict) {
  DraftWorld world = make_world(flat, 1, 0.85);
  world.known.costs = run_world(world, {DraftMode::kAdaptive, 5}, 5, 1).learnt.costs;
  world.known.verdicts = {{.octave = 0, .advantage = 0.7, .resting = true, .failed = 5, .debt = 2}};
  expect_good(world, seconds_of(world, 8000), 0.9, "an old verdict");
}

TEST(DraftWorld, RunsAreRepeatable) {
  const DraftWorld world = make_world(flat, 4, 0.6);
  const DraftControlOptions options{DraftMode::kAdaptive, 5};
  const WorldResult once = run_world(world, options, 20, 3),
                    again = run_world(world, options, 20, 3);
  EXPECT_EQ(once.tokens, again.tokens);
  EXPECT_EQ(once.seconds, again.seconds);
}

}  // namespace
}  // namespace di::sched
