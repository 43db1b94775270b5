// A world of random requests around one scheduler, and a device that notices what a real one would
// suffer from. For the property test and the fuzzer, which differ in where choices come from.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "sched/scheduler.h"

namespace di::sched {

/// What the device holds of a sequence: its slot and block table, as the plans told it.
struct DeviceSequence {
  int32_t slot = -1;
  std::vector<int32_t> blocks;
  int64_t computed = 0;
  int64_t reached = 0;  ///< rows that it was to have blocks for, with drafts that were rejected
};

/// What a sequence drew in a step, as the device knows it when the step runs.
struct RandomDraw {
  DrawOutcome outcome;
  bool ends = false;  ///< it drew its last token
};

/// The device's side. Throws std::runtime_error when a plan cannot be run, or touches memory that a
/// step in flight still uses for another sequence.
class RandomDevice {
 public:
  /// `draws`: of each sequence of the plan that was to draw, forks last.
  void launch(const StepPlan& plan, const std::vector<RandomDraw>& draws);
  void retire() { in_flight_.pop_front(); }

 private:
  // Memory that a step uses, with the sequence it uses it for.
  struct Uses {
    std::map<int32_t, SequenceId> slots;
    std::map<int32_t, std::set<SequenceId>> blocks;
  };

  void run(const PlannedSequence& planned, int64_t num_tokens);
  void run(const Fork& fork);
  void take_slot(int32_t slot, SequenceId id);
  void take_block(int32_t block, SequenceId id);

  std::map<SequenceId, DeviceSequence> sequences_;
  std::deque<Uses> in_flight_;
};

/// Arrivals, aborts, deadlines, forks and draws by choice.
class RandomWorld {
 public:
  /// A number from 0 to n − 1.
  using Choose = std::function<int64_t(int64_t n)>;

  explicit RandomWorld(Choose choose);
  ~RandomWorld();

  /// One call of plan() and what may happen around it. Throws std::runtime_error when a rule of
  /// the scheduler is broken.
  void turn(bool with_arrivals);

  /// Lets everybody end. Throws when that takes too long or something stays behind.
  void drain();

 private:
  struct Request {
    SequenceSpec spec;
    int64_t length = 0;  // its stop token is this one
    int64_t drawn = 0;
  };

  static constexpr std::size_t kMostRequests = 60;

  SchedulerOptions choose_options();
  void arrive();
  void abort_one();
  void make_ready(bool all);
  void plan();
  void check(const StepPlan& plan) const;
  void retire();
  RandomDraw draw(SequenceId id, int64_t num_drafts);
  void end(SequenceId id);
  bool may_run() const;
  bool chance(int64_t one_in) { return choose_(one_in) == 0; }

  Choose choose_;
  cache::BlockPool blocks_;
  cache::SlotPool slots_;
  SchedulerOptions options_;
  int64_t lag_;
  int64_t num_drafts_;
  Scheduler scheduler_;
  RandomDevice device_;
  double now_ = 0;
  bool idle_ = false;
  SequenceId next_id_ = 0;
  std::map<SequenceId, Request> alive_;
  std::set<SequenceId> unready_;
  struct InFlight {
    StepPlan plan;
    std::vector<RandomDraw> draws;
  };
  std::deque<InFlight> in_flight_;
};

}  // namespace di::sched
