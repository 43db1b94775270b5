// Who is let in and who gives way: admission by expected peak demand, preemption by real need.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "sched/state.h"

namespace di::sched {

// Lets a waiting sequence take a slot when all who run are expected to fit with it to their ends.
// One that would run alone always fits: add() saw to that.
bool Scheduler::State::try_admit(Sequence& sequence, Planning& planning) {
  if (std::ssize(running) >= options.max_num_seqs || block_pool->num_free() == 0) return false;
  if (!planning.demand) planning.demand = peak_demand(std::numeric_limits<int>::min());
  const Demand demand = demand_of(sequence);
  planning.demand->add(demand);
  const bool fits = running.empty() || planning.demand->num_blocks() <= block_pool->size();
  auto slot = fits ? slot_pool->take() : std::nullopt;
  if (!slot) {
    planning.demand->remove(demand);
    return false;
  }
  Level& level = level_of(sequence);
  level.waiting.erase(sequence, level.users);
  start_running(sequence, Phase::kPrefilling, std::move(*slot));
  return true;
}

void Scheduler::State::start_running(Sequence& sequence, Phase phase, cache::SlotRef slot) {
  waiting_tokens -= sequence.num_rows_left();
  sequence.phase = phase;
  sequence.holdings.slot = std::move(slot);
  running.insert(
      std::upper_bound(running.begin(), running.end(), &sequence, BySeniority()), &sequence
  );
}

void Scheduler::State::stop_running(Sequence& sequence) {
  const auto place = std::lower_bound(running.begin(), running.end(), &sequence, BySeniority());
  DI_CHECK(place != running.end() && *place == &sequence, "whoever holds a slot is running");
  running.erase(place);
}

// The row of the last token that is drawn is never computed.
Demand Scheduler::State::demand_of(const Sequence& sequence) const {
  const int64_t more = forecast.expected_more(sequence.outputs, sequence.spec.max_tokens);
  const int64_t at_end = sequence.num_tokens() + more - 1;
  Demand demand;
  demand.tokens = std::max(sequence.spec.prompt_tokens, sequence.num_tokens() - 1);
  demand.growth = at_end - demand.tokens;
  demand.shared_blocks = sequence.shared_blocks;
  return demand;
}

// Of those who run with at least `least_priority`. Blocks that only forks still share have lost the
// sequence whose demand counted them: they stay taken as far as this can tell.
PeakDemand Scheduler::State::peak_demand(int least_priority) const {
  std::vector<Demand> demands;
  demands.reserve(running.size() + 1);
  int64_t fixed = block_pool->size() - block_pool->num_free() - num_blocks_coming();
  for (const Sequence* sequence : running) {
    if (sequence->is_complete()) continue;
    fixed -= sequence->num_blocks() - sequence->shared_blocks;
    if (sequence->spec.priority >= least_priority) demands.push_back(demand_of(*sequence));
  }
  return PeakDemand(std::move(demands), std::max<int64_t>(fixed, 0));
}

void Scheduler::State::make_room(Planning& planning) {
  make_room_for_priority(planning);
  if (block_pool->num_free() >= std::ssize(running)) return;
  while (num_blocks_wanted() > block_pool->num_free() + num_blocks_coming()) {
    Sequence* sequence = victim(protected_one(), std::numeric_limits<int64_t>::max());
    if (sequence == nullptr) return;
    preempt(*sequence, planning);
  }
}

// A waiting sequence does not wait for lower priorities: they give way as far as that lets it in.
void Scheduler::State::make_room_for_priority(Planning& planning) {
  if (running.empty()) return;
  const int lowest = running.back()->spec.priority;
  const Sequence* head = nullptr;
  for (const auto& [priority, level] : levels) {
    if (priority <= lowest) return;
    head = level.waiting.first_due();
    if (head != nullptr) break;
  }
  if (head == nullptr) return;
  const int priority = head->spec.priority;
  const auto fits = [&](int least_priority) {
    const auto num_beside = std::count_if(running.begin(), running.end(), [&](const Sequence* s) {
      return s->spec.priority >= least_priority;
    });
    PeakDemand demand = peak_demand(least_priority);
    demand.add(demand_of(*head));
    return num_beside < options.max_num_seqs && num_beside < slot_pool->size() &&
           demand.num_blocks() <= block_pool->size();
  };
  if (!fits(priority)) return;
  while (!fits(std::numeric_limits<int>::min())) {
    Sequence* sequence = victim(nullptr, priority);
    if (sequence == nullptr) return;
    preempt(*sequence, planning);
  }
}

// Blocks that the next row needs of every sequence that decodes and of the first in line.
int64_t Scheduler::State::num_blocks_wanted() const {
  const Sequence* first = protected_one();
  return std::count_if(running.begin(), running.end(), [&](const Sequence* sequence) {
    const bool goes_on = sequence->phase == Phase::kDecoding || sequence == first;
    return goes_on && !sequence->may_be_complete() && sequence->lacks_block();
  });
}

// Blocks that return without anybody giving way: with a step in flight, or with sequences that have
// nothing left to compute. Shared ones may count twice; then a row waits for the step to retire and
// the next plan sees what came of it.
int64_t Scheduler::State::num_blocks_coming() const {
  int64_t sum = 0;
  for (const StepInFlight& step : in_flight) {
    for (const cache::Holdings& holdings : step.released)
      sum += std::ssize(holdings.blocks);
  }
  for (const Sequence* sequence : running) {
    if (sequence->is_complete()) sum += sequence->num_blocks();
  }
  return sum;
}

// The first in line of those who still compute: never a victim, so that it ends.
const Sequence* Scheduler::State::protected_one() const {
  const auto first = std::find_if_not(running.begin(), running.end(), [](const Sequence* s) {
    return s->is_complete();
  });
  return first == running.end() ? nullptr : *first;
}

// Lowest priority; then the least work lost, counting what it lost before, so that nobody gives way
// again and again; then the last in line.
Sequence* Scheduler::State::victim(const Sequence* kept, int64_t below_priority) const {
  Sequence* best = nullptr;
  const auto loss = [](const Sequence& s) {
    return std::pair(s.spec.priority, s.computed + s.lost);
  };
  for (auto place = running.rbegin(); place != running.rend(); ++place) {
    Sequence* sequence = *place;
    if (sequence == kept || sequence->spec.priority >= below_priority) continue;
    if (sequence->is_complete()) continue;
    if (best == nullptr || loss(*sequence) < loss(*best)) best = sequence;
  }
  return best;
}

void Scheduler::State::preempt(Sequence& sequence, Planning& planning) {
  leave_phase(sequence);
  release_holdings(sequence);
  sequence.lost += sequence.computed;
  forecast.observe_loss(sequence.computed);
  sequence.recomputed_until = std::max(sequence.recomputed_until, sequence.computed);
  sequence.computed = 0;
  sequence.reached = 0;
  sequence.shared_blocks = 0;
  waiting_tokens += sequence.num_rows_left();
  ++num_preemptions;
  planning.demand.reset();
  planning.plan.preempted.push_back(sequence.spec.id);
  if (sequence.steps_in_flight == 0)
    enter_waiting(sequence);
  else
    sequence.phase = Phase::kSettling;
}

}  // namespace di::sched
