// A scheduler with its pools and a device that does what a test says. For tests of the room.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "cache/layout.h"
#include "sched/scheduler.h"

namespace di::sched {

inline SequenceSpec spec_of(SequenceId id, int64_t prompt_tokens, int64_t max_tokens) {
  SequenceSpec spec;
  spec.id = id;
  spec.prompt_tokens = prompt_tokens;
  spec.max_tokens = max_tokens;
  return spec;
}

inline const PlannedSequence* rows_of(const StepPlan& plan, SequenceId id) {
  for (const PlannedSequence& planned : plan.sequences)
    if (planned.id == id) return &planned;
  return nullptr;
}

inline int64_t num_rows_of(const StepPlan& plan, SequenceId id) {
  const PlannedSequence* planned = rows_of(plan, id);
  return planned == nullptr ? 0 : planned->num_rows;
}

/// Sequences end when they have drawn their max_tokens, unless a test ends them.
class Driver {
 public:
  Driver(int64_t num_blocks, int64_t num_slots, const SchedulerOptions& options = {})
      : blocks(num_blocks), slots(num_slots), scheduler(options, blocks, slots) {}

  void add(const SequenceSpec& spec) {
    scheduler.add(spec);
    left_[spec.id] = spec.max_tokens;
  }

  /// Plans a step, which is then in flight when it has rows.
  StepPlan plan() {
    StepPlan plan = scheduler.plan(now);
    scheduler.check_integrity();
    if (plan.has_rows()) in_flight_.push_back(plan);
    return plan;
  }

  /// The oldest step in flight is done; whoever has drawn all tokens ends.
  void retire(double seconds = 0) {
    const StepPlan step = std::move(in_flight_.front());
    in_flight_.pop_front();
    StepOutcome outcome{.seconds = seconds};
    for (const PlannedSequence& planned : step.sequences)
      if (planned.samples) outcome.draws.push_back({planned.id, 1});
    for (const Fork& fork : step.forks)
      outcome.draws.push_back({fork.child, 1});
    scheduler.retire(step.step, outcome);
    for (const DrawOutcome& draw : outcome.draws) {
      if (--left_[draw.id] == 0) scheduler.finish(draw.id);
    }
    scheduler.check_integrity();
  }

  /// plan(), and retires what it planned.
  StepPlan step(double seconds = 0) {
    StepPlan planned = plan();
    if (planned.has_rows()) retire(seconds);
    return planned;
  }

  /// Steps until nothing is left; the number of steps, or −1 when there are more than `most`.
  int64_t drain(int64_t most = 100'000) {
    while (!in_flight_.empty())
      retire();
    int64_t steps = 0;
    for (; scheduler.has_work() && steps <= most; ++steps)
      step();
    return steps <= most ? steps : -1;
  }

  bool all_is_free() const {
    return blocks.num_free() == blocks.size() && slots.num_free() == slots.size();
  }

  cache::BlockPool blocks;
  cache::SlotPool slots;
  Scheduler scheduler;
  double now = 0;

 private:
  std::deque<StepPlan> in_flight_;
  std::map<SequenceId, int64_t> left_;
};

}  // namespace di::sched
