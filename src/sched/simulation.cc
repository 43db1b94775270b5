// The loop of an engine around our scheduler, with a model of the device; see simulation.h.
#include "sched/simulation.h"

#include <chrono>
#include <deque>
#include <memory>
#include <queue>
#include <unordered_map>
#include <utility>

#include "sched/simulation_record.h"

namespace di::sched {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// One rank: a scheduler with its pools.
struct Rank {
  Rank(const SchedulerOptions& options, const SimulatedMachine& machine)
      : blocks(machine.num_blocks), slots(machine.num_slots), scheduler(options, blocks, slots) {}

  cache::BlockPool blocks;
  cache::SlotPool slots;
  Scheduler scheduler;
};

// A step of all ranks; a rank without rows has none in it.
struct GroupStep {
  int64_t number = 0;
  double seconds = 0;
  double end = 0;
  std::vector<StepPlan> plans;
};

class Simulation {
 public:
  Simulation(
      const Traffic& traffic, const SchedulerOptions& options, const SimulatedMachine& machine
  )
      : traffic_(traffic), machine_(machine), record_(traffic) {
    for (int64_t rank = 0; rank < machine.num_ranks; ++rank)
      ranks_.push_back(std::make_unique<Rank>(options, machine));
  }

  SimulationResult run() {
    while (result_.num_steps < machine_.max_steps) {
      deliver();
      const bool has_rows = plan();
      if (!has_rows && in_flight_.empty()) {
        if (!skip_to_next_event()) break;
        continue;
      }
      while (std::ssize(in_flight_) > machine_.lag || (!has_rows && !in_flight_.empty())) {
        retire();
        if (!has_rows) break;
      }
    }
    return finish();
  }

 private:
  // A choice of a request, on its way.
  struct Choice {
    std::size_t request = 0;
    bool is_first = false;
    int64_t drawn = 0;
  };

  using Event = std::pair<double, SequenceId>;

  void deliver() {
    for (; next_ < traffic_.size() && traffic_[next_].arrival <= now_; ++next_)
      add(next_);
    for (; !aborts_.empty() && aborts_.top().first <= now_; aborts_.pop()) {
      const SequenceId id = aborts_.top().second;
      if (!choices_.contains(id)) continue;
      rank_of(id).scheduler.finish(id);
      end(id, result_.num_steps, true);
    }
  }

  void add(std::size_t index) {
    const SimulatedRequest& request = traffic_[index];
    record_.arrived(index, result_.num_steps + 1);
    SequenceSpec spec;
    spec.user = request.user;
    spec.priority = request.priority;
    spec.arrival = request.arrival;
    spec.deadline = request.deadline;
    spec.prompt_tokens = request.prompt_tokens;
    spec.max_tokens = request.max_tokens;
    choices_left_[index] = request.num_choices;
    const SequenceId first = next_id_;
    for (int64_t choice = 0; choice < request.num_choices; ++choice) {
      spec.id = next_id_++;
      spec.fork_of = choice == 0 ? kNoSequence : first;
      choices_[spec.id] = {index, choice == 0, 0};
      rank_of(spec.id).scheduler.add(spec);
      if (request.abort_at < std::numeric_limits<double>::infinity())
        aborts_.emplace(request.abort_at, spec.id);
    }
  }

  Rank& rank_of(SequenceId id) {
    const SimulatedRequest& request = traffic_[choices_.at(id).request];
    return *ranks_[static_cast<std::size_t>(request.rank)];
  }

  bool plan() {
    GroupStep step;
    step.number = result_.num_steps + 1;
    bool has_rows = false;
    for (const auto& rank : ranks_) {
      const auto start = Clock::now();
      StepPlan plan = rank->scheduler.plan(now_);
      result_.plan_us.push_back(microseconds_since(start));
      for (const SequenceId id : plan.expired)
        end(id, result_.num_steps, true);
      for (const PlannedSequence& planned : plan.sequences) {
        if (!planned.is_prefill) continue;
        record_.prompt_rows(choices_.at(planned.id).request, step.number);
      }
      has_rows |= plan.has_rows();
      result_.num_prompt_rows += plan.num_prefill_rows;
      const double own = machine_.seconds.of(plan.num_decode_rows, plan.num_prefill_rows);
      step.seconds = std::max(step.seconds, own);
      step.plans.push_back(std::move(plan));
    }
    if (!has_rows) {
      result_.plan_us.resize(result_.plan_us.size() - ranks_.size());
      return false;
    }
    ++result_.num_steps;
    device_free_ = std::max(device_free_, now_) + step.seconds;
    step.end = device_free_;
    in_flight_.push_back(std::move(step));
    return true;
  }

  void retire() {
    const GroupStep step = std::move(in_flight_.front());
    in_flight_.pop_front();
    now_ = std::max(now_, step.end);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const StepPlan& plan = step.plans[rank];
      if (plan.has_rows()) retire_rank(ranks_[rank]->scheduler, plan, step);
    }
  }

  void retire_rank(Scheduler& scheduler, const StepPlan& plan, const GroupStep& step) {
    StepOutcome outcome{.seconds = step.seconds};
    std::vector<SequenceId> stopped;
    const auto draw = [&](SequenceId id) {
      const auto entry = choices_.find(id);
      const bool is_over = entry == choices_.end();
      outcome.draws.push_back({id, is_over ? 0 : 1, is_over});
      if (is_over) return;
      Choice& choice = entry->second;
      if (choice.is_first) record_.token(choice.request, step.number, now_);
      if (++choice.drawn >= traffic_[choice.request].output_tokens) stopped.push_back(id);
    };
    for (const PlannedSequence& planned : plan.sequences)
      if (planned.samples) draw(planned.id);
    for (const Fork& fork : plan.forks)
      draw(fork.child);

    const auto start = Clock::now();
    scheduler.retire(plan.step, outcome);
    for (const SequenceId id : stopped)
      scheduler.finish(id);
    result_.retire_us.push_back(microseconds_since(start));
    for (const SequenceId id : stopped)
      end(id, step.number, false);
  }

  void end(SequenceId id, int64_t step, bool aborted) {
    const std::size_t request = choices_.at(id).request;
    choices_.erase(id);
    if (--choices_left_[request] == 0) record_.ended(request, step, now_, aborted);
  }

  bool skip_to_next_event() {
    double next = std::numeric_limits<double>::infinity();
    if (next_ < traffic_.size()) next = traffic_[next_].arrival;
    if (!aborts_.empty()) next = std::min(next, aborts_.top().first);
    if (next == std::numeric_limits<double>::infinity()) return false;
    now_ = std::max(now_, next);
    return true;
  }

  SimulationResult finish() {
    result_.requests = record_.take();
    result_.seconds = device_free_;
    for (const RequestTimes& times : result_.requests)
      result_.num_unfinished += times.end_steps == 0;
    for (const auto& rank : ranks_) {
      const SchedulerCounts counts = rank->scheduler.counts();
      result_.num_preemptions += counts.num_preemptions;
      result_.num_recomputed_tokens += counts.num_recomputed_tokens;
      if (!rank->scheduler.has_work()) result_.num_blocks_lost += counts.blocks_used;
    }
    return std::move(result_);
  }

  const Traffic& traffic_;
  const SimulatedMachine machine_;
  SimulationRecord record_;
  SimulationResult result_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::deque<GroupStep> in_flight_;
  double now_ = 0;
  double device_free_ = 0;
  std::size_t next_ = 0;
  SequenceId next_id_ = 0;
  std::unordered_map<SequenceId, Choice> choices_;
  std::unordered_map<std::size_t, int64_t> choices_left_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> aborts_;
};

}  // namespace

SimulationResult simulate(
    const Traffic& traffic, const SchedulerOptions& options, const SimulatedMachine& machine
) {
  return Simulation(traffic, options, machine).run();
}

}  // namespace di::sched
