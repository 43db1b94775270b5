// What a scheduler keeps, and the steps of planning. Private to the room; each group of functions
// below has its own file.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sched/candidates.h"
#include "sched/demand.h"
#include "sched/scheduler.h"
#include "sched/sequence.h"
#include "sched/step_cost.h"

namespace di::sched {

/// A step on its way: who is part of it, and the memory that waits for its end.
struct StepInFlight {
  struct Part {
    SequenceId id = kNoSequence;
    int64_t num_tokens = 0;  ///< that it was to draw at most
  };
  int64_t step = 0;
  int64_t num_decode_rows = 0;
  int64_t num_prefill_rows = 0;
  std::vector<Part> parts;
  std::vector<cache::Holdings> released;  ///< of sequences whose last step this is
};

/// Prompt rows given to one sequence in the step being planned.
struct Grant {
  Sequence* sequence = nullptr;
  PlannedSequence rows;
};

/// A step being planned.
struct Planning {
  double now = 0;
  StepPlan plan;
  int64_t prompt_rows_left = 0;
  std::vector<Grant> grants;
  bool admits = true;                ///< false: nobody else is admitted in this step
  bool admits_short = true;          ///< false: nobody else through the short lane of this level
  bool admits_due = true;            ///< false: nobody else through the due lane of this level
  std::optional<PeakDemand> demand;  ///< of those running, once it was asked for
};

struct Scheduler::State {
  State(const SchedulerOptions& options_in, cache::BlockPool& blocks, cache::SlotPool& slots);

  // scheduler.cc: the life of a sequence.
  void check_spec(const SequenceSpec& spec) const;
  void add(const SequenceSpec& spec);
  void set_ready(SequenceId id);
  void finish(SequenceId id);
  StepPlan plan(double now, const NumDrafts& num_drafts);
  void retire(int64_t step, const StepOutcome& outcome);
  void settle(const StepInFlight& step, const StepOutcome& outcome);
  void take_back(Sequence& sequence, int64_t num_tokens);
  Sequence* find(SequenceId id);
  void end(Sequence& sequence);
  void enter_waiting(Sequence& sequence);
  void leave_phase(Sequence& sequence);
  void release_holdings(Sequence& sequence);
  void expire(Planning& planning);
  void join_step(Sequence& sequence, const Planning& planning);
  void commit(Planning& planning);

  // prefill.cc: who gets prompt rows.
  void plan_prefills(Planning& planning);
  int64_t num_prompt_rows(const Planning& planning) const;
  void plan_level(Level& level, Planning& planning);
  void serve(Lane lane, int64_t quota, Level& level, Planning& planning);
  Sequence* next_of(Lane lane, Level& level, Planning& planning);
  int64_t grow(Grant& grant, int64_t max_rows, Planning& planning);
  void complete_prompt(Sequence& sequence, Planning& planning);
  bool try_fork(Sequence& parent, Sequence& child, Planning& planning);

  // decode.cc: one row each.
  void plan_decodes(Planning& planning);
  bool take_block(Sequence& sequence, std::vector<int32_t>& new_blocks);

  // drafts.cc: rows behind those, with what is left of the step.
  void plan_drafts(Planning& planning, const NumDrafts& num_drafts);
  std::vector<int64_t> share_draft_rows(const Planning& planning, const NumDrafts& num_drafts);
  int64_t cover_drafts(Sequence& sequence, int64_t wanted, PlannedSequence& rows);

  // memory.cc: admission and preemption.
  bool try_admit(Sequence& sequence, Planning& planning);
  void start_running(Sequence& sequence, Phase phase, cache::SlotRef slot);
  void stop_running(Sequence& sequence);
  Demand demand_of(const Sequence& sequence) const;
  PeakDemand peak_demand(int least_priority) const;
  void make_room(Planning& planning);
  void make_room_for_priority(Planning& planning);
  int64_t num_blocks_wanted() const;
  int64_t num_blocks_coming() const;
  const Sequence* protected_one() const;
  Sequence* victim(const Sequence* kept, int64_t below_priority) const;
  void preempt(Sequence& sequence, Planning& planning);

  // ledger.cc
  SchedulerCounts counts() const;
  void check_integrity() const;

  Level& level_of(const Sequence& sequence) { return levels.at(sequence.spec.priority); }

  SchedulerOptions options;
  cache::BlockPool* block_pool;
  cache::SlotPool* slot_pool;

  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences;
  std::map<int, Level, std::greater<>> levels;  ///< priorities that have sequences
  std::vector<Sequence*> running;               ///< those with a slot, by seniority
  std::set<std::pair<double, SequenceId>> deadlines;
  std::deque<StepInFlight> in_flight;
  int64_t next_step = 0;

  StepCost cost;
  OutputForecast forecast;
  int64_t waiting_tokens = 0;  ///< rows left of those without a slot
  int64_t num_preemptions = 0;
  int64_t num_recomputed_tokens = 0;
};

}  // namespace di::sched
