// Random steps: whatever arrives, ends, is cut short or runs out of memory, the ledger adds up
// after each step, everybody ends, and nothing is left behind.
#include <random>
#include <stdexcept>

#include <gtest/gtest.h>

#include "sched/random_world.h"

namespace di::sched {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kTotalTurns = 50'000;
#else
constexpr int64_t kTotalTurns = 1'000'000;
#endif

TEST(Scheduler, AMillionRandomStepsKeepTheLedgerAndEndEverything) {
  constexpr int64_t kTurnsOfRun = 500;
  for (uint32_t seed = 0; seed < kTotalTurns / kTurnsOfRun; ++seed) {
    std::mt19937 random(seed);
    RandomWorld world([&](int64_t n) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    });
    try {
      for (int64_t turn = 0; turn < kTurnsOfRun; ++turn)
        world.turn(true);
      world.drain();
    } catch (const std::runtime_error& error) {
      FAIL() << "seed " << seed << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace di::sched
