// A made-up machine with sequences that draft, under a clock of its own: what DraftControl is tried
// on. Costs, noise, acceptance and load are the caller's, so is the truth known.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sched/draft_control.h"

namespace di::sched {

/// What is true. Times are seconds of the world's clock.
struct DraftWorld {
  std::function<double(double rows, double now)> backbone;  ///< seconds of a step without drafting
  double drafting_base = 0;                                 ///< seconds of making drafts
  double drafting_each = 0;                                 ///< and for each sequence
  std::function<double(double now)> quality;  ///< probability that a draft is accepted, typically
  std::function<int64_t(double now)> load;    ///< sequences that run
  double spread = 1;                          ///< of sequences around the quality, in log-odds
  double overconfidence = 0;                  ///< log-odds that confidences lie too high
  double noise = 0.05;                        ///< of a step's seconds, relative
  double hiccups = 0.002;                     ///< share of steps that take ten times as long
  bool lagged = false;         ///< a budget by the step before, instead of an early stop
  int64_t lag = 1;             ///< steps planned before a step's results are known
  bool tells_drafting = true;  ///< the device measures the seconds of drafting
  int64_t length = 400;        ///< tokens of a sequence, half to one and a half times
  int64_t prompt = 16;         ///< prompt rows of one that begins
  DraftKnowledge known = {};   ///< of an earlier run
};

/// What came of it.
struct WorldResult {
  int64_t steps = 0;
  int64_t tokens = 0;
  double seconds = 0;
  int64_t verified = 0;
  int64_t accepted = 0;
  DraftControlState state = {};
  DraftKnowledge learnt = {};
  std::size_t running = 0;  ///< sequences at the end
  std::size_t known = 0;    ///< of these, to the control

  double rate() const { return static_cast<double>(tokens) / seconds; }
};

/// Runs a world for so many seconds. The same seed gives the same sequences and noise.
WorldResult run_world(
    const DraftWorld& world, const DraftControlOptions& options, double seconds, uint32_t seed
);

}  // namespace di::sched
