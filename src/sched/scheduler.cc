// The life of a sequence, and the frame of a step; see scheduler.h.
#include "sched/scheduler.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"
#include "sched/state.h"

namespace di::sched {
namespace {

void require(bool holds, const std::string& message) {
  if (!holds) throw Error(ErrorCode::kInvalidArgument, message);
}

void check_options(const SchedulerOptions& options) {
  require(
      options.max_num_seqs >= 1,
      fmt::format("max_num_seqs is {}; at least 1 is needed", options.max_num_seqs)
  );
  require(
      options.max_num_batched_tokens >= options.max_num_seqs,
      fmt::format(
          "max_num_batched_tokens is {}, but each of max_num_seqs = {} sequences needs a row of a "
          "step; raise the first or lower the second",
          options.max_num_batched_tokens,
          options.max_num_seqs
      )
  );
  require(
      options.min_prefill_rows >= 1,
      fmt::format(
          "min_prefill_rows is {}; at least 1 is needed, or no prompt would end",
          options.min_prefill_rows
      )
  );
  require(
      options.max_step_seconds >= 0 && options.patience_seconds >= 0,
      fmt::format(
          "max_step_seconds is {} and patience_seconds {}; neither may be below 0",
          options.max_step_seconds,
          options.patience_seconds
      )
  );
}

}  // namespace

Scheduler::Scheduler(
    const SchedulerOptions& options, cache::BlockPool& block_pool, cache::SlotPool& slot_pool
) {
  check_options(options);
  state_ = std::make_unique<State>(options, block_pool, slot_pool);
}
Scheduler::~Scheduler() = default;
void Scheduler::add(const SequenceSpec& spec) {
  state_->add(spec);
}
void Scheduler::set_ready(SequenceId id) {
  state_->set_ready(id);
}
void Scheduler::finish(SequenceId id) {
  state_->finish(id);
}
StepPlan Scheduler::plan(double now, const NumDrafts& num_drafts) {
  return state_->plan(now, num_drafts);
}
void Scheduler::retire(int64_t step, const StepOutcome& outcome) {
  state_->retire(step, outcome);
}
bool Scheduler::has_work() const {
  return !state_->sequences.empty() || !state_->in_flight.empty();
}
SchedulerCounts Scheduler::counts() const {
  return state_->counts();
}
void Scheduler::check_integrity() const {
  state_->check_integrity();
}

Scheduler::State::State(
    const SchedulerOptions& options_in, cache::BlockPool& blocks, cache::SlotPool& slots
)
    : options(options_in),
      block_pool(&blocks),
      slot_pool(&slots),
      forecast(std::max<int64_t>(blocks.size(), 1) * cache::kBlockTokens) {}

void Scheduler::State::check_spec(const SequenceSpec& spec) const {
  require(
      !sequences.contains(spec.id) && spec.id != kNoSequence,
      fmt::format("sequence {} is there already; ids are used once", spec.id)
  );
  require(
      spec.prompt_tokens >= 1 && spec.max_tokens >= 1 && spec.max_chunk_rows >= 0 &&
          !std::isnan(spec.deadline) && std::isfinite(spec.arrival),
      fmt::format(
          "sequence {}: prompt_tokens {} and max_tokens {} must be at least 1, max_chunk_rows {} "
          "at least 0, and the times numbers",
          spec.id,
          spec.prompt_tokens,
          spec.max_tokens,
          spec.max_chunk_rows
      )
  );
  const int64_t capacity = block_pool->size() * cache::kBlockTokens;
  require(
      spec.prompt_tokens <= capacity && spec.max_tokens <= capacity - spec.prompt_tokens,
      fmt::format(
          "sequence {}: {} prompt tokens and {} output tokens do not fit the cache of {} tokens",
          spec.id,
          spec.prompt_tokens,
          spec.max_tokens,
          capacity
      )
  );
  require(slot_pool->size() >= 1, "the pool has no state slot");
}

void Scheduler::State::add(const SequenceSpec& spec) {
  check_spec(spec);
  Sequence* parent = spec.fork_of == kNoSequence ? nullptr : find(spec.fork_of);
  if (parent != nullptr && parent->parent != nullptr) parent = parent->parent;
  const bool forks = parent != nullptr && parent->outputs == 0 && !parent->over;
  require(
      !forks || parent->spec.prompt_tokens == spec.prompt_tokens,
      fmt::format("sequence {} has another prompt than {}", spec.id, spec.fork_of)
  );

  Sequence& sequence = *(sequences[spec.id] = std::make_unique<Sequence>());
  sequence.spec = spec;
  const bool has_deadline = std::isfinite(spec.deadline);
  sequence.due = has_deadline ? spec.deadline : spec.arrival + options.patience_seconds;
  if (has_deadline) deadlines.emplace(spec.deadline, spec.id);
  levels[spec.priority].users.enter(spec.user);
  waiting_tokens += spec.prompt_tokens;
  if (!spec.ready) {
    sequence.phase = Phase::kUnready;
  } else if (forks) {
    sequence.phase = Phase::kForking;
    sequence.parent = parent;
    parent->forks.push_back(&sequence);
  } else {
    enter_waiting(sequence);
  }
}

void Scheduler::State::set_ready(SequenceId id) {
  Sequence* sequence = find(id);
  if (sequence != nullptr && sequence->phase == Phase::kUnready) enter_waiting(*sequence);
}

void Scheduler::State::finish(SequenceId id) {
  if (Sequence* sequence = find(id)) end(*sequence);
}

Sequence* Scheduler::State::find(SequenceId id) {
  const auto entry = sequences.find(id);
  return entry == sequences.end() ? nullptr : entry->second.get();
}

// The one way out, whatever the reason.
void Scheduler::State::end(Sequence& sequence) {
  if (sequence.outputs > 0) forecast.observe_end(sequence.outputs, sequence.spec.max_tokens);
  if (!sequence.holds_slot()) waiting_tokens -= sequence.num_rows_left();
  leave_phase(sequence);
  release_holdings(sequence);
  for (Sequence* child : sequence.forks) {
    child->parent = nullptr;
    enter_waiting(*child);
  }
  deadlines.erase({sequence.spec.deadline, sequence.spec.id});
  const auto level = levels.find(sequence.spec.priority);
  level->second.users.leave(sequence.spec.user);
  if (level->second.users.empty()) levels.erase(level);
  sequences.erase(sequence.spec.id);
}

void Scheduler::State::enter_waiting(Sequence& sequence) {
  sequence.phase = Phase::kWaiting;
  Level& level = level_of(sequence);
  level.waiting.insert(sequence, level.users);
}

// Takes the sequence out of whatever its phase put it into.
void Scheduler::State::leave_phase(Sequence& sequence) {
  Level& level = level_of(sequence);
  if (sequence.phase == Phase::kWaiting) level.waiting.erase(sequence, level.users);
  if (sequence.phase == Phase::kPrefilling) level.prefilling.erase(sequence, level.users);
  if (sequence.phase == Phase::kForking) std::erase(sequence.parent->forks, &sequence);
  if (sequence.holds_slot()) stop_running(sequence);
}

// A step in flight may still touch what the sequence held: then it waits for the end of that step.
void Scheduler::State::release_holdings(Sequence& sequence) {
  cache::Holdings holdings = std::move(sequence.holdings);
  sequence.holdings = {};
  if (holdings.empty() || sequence.steps_in_flight == 0) return;
  const int64_t index = sequence.last_step - in_flight.front().step;
  in_flight[static_cast<std::size_t>(index)].released.push_back(std::move(holdings));
}

StepPlan Scheduler::State::plan(double now, const NumDrafts& num_drafts) {
  Planning planning;
  planning.now = now;
  planning.plan.step = next_step;
  expire(planning);
  make_room(planning);
  plan_decodes(planning);
  plan_prefills(planning);
  if (num_drafts) plan_drafts(planning, num_drafts);
  commit(planning);
  return std::move(planning.plan);
}

void Scheduler::State::expire(Planning& planning) {
  while (!deadlines.empty() && deadlines.begin()->first < planning.now) {
    const SequenceId id = deadlines.begin()->second;
    planning.plan.expired.push_back(id);
    end(*find(id));
  }
}

void Scheduler::State::join_step(Sequence& sequence, const Planning& planning) {
  ++sequence.steps_in_flight;
  sequence.last_step = planning.plan.step;
}

// Writes the grants into the plan and, when the step has rows, puts it in flight.
void Scheduler::State::commit(Planning& planning) {
  StepPlan& plan = planning.plan;
  for (Grant& grant : planning.grants) {
    Sequence& sequence = *grant.sequence;
    if (sequence.phase == Phase::kPrefilling) {
      Level& level = level_of(sequence);
      level.prefilling.insert(sequence, level.users);
    }
    if (grant.rows.num_rows == 0) continue;
    plan.num_prefill_rows += grant.rows.num_rows;
    plan.sequences.push_back(std::move(grant.rows));
  }
  if (!plan.has_rows()) return;

  StepInFlight& step = in_flight.emplace_back();
  step.step = next_step++;
  step.num_decode_rows = plan.num_decode_rows;
  step.num_prefill_rows = plan.num_prefill_rows;
  step.parts.reserve(plan.sequences.size() + plan.forks.size());
  for (const PlannedSequence& planned : plan.sequences)
    step.parts.push_back({planned.id, planned.samples ? 1 + planned.num_drafts : 0});
  for (const Fork& made : plan.forks)
    step.parts.push_back({made.child, 1});
}

void Scheduler::State::retire(int64_t step, const StepOutcome& outcome) {
  DI_CHECK(!in_flight.empty() && in_flight.front().step == step, "steps retire in their order");
  const StepInFlight done = std::move(in_flight.front());
  in_flight.pop_front();
  const int64_t decode_rows = done.num_decode_rows + outcome.num_draft_rows;
  cost.observe(decode_rows, done.num_prefill_rows, outcome.seconds);
  const auto rows = static_cast<double>(decode_rows + done.num_prefill_rows);
  forecast.observe_work(std::max(rows, cost.in_prefill_rows(outcome.seconds)));
  settle(done, outcome);
  for (const StepInFlight::Part& part : done.parts) {
    Sequence* sequence = find(part.id);
    if (sequence == nullptr) continue;
    --sequence->steps_in_flight;
    const bool settles = sequence->phase == Phase::kSettling && sequence->steps_in_flight == 0;
    if (settles && !sequence->is_complete()) enter_waiting(*sequence);
  }
}

// What was planned becomes what was drawn.
void Scheduler::State::settle(const StepInFlight& step, const StepOutcome& outcome) {
  auto drawn = outcome.draws.begin();  // in the order of the parts, as far as they are told
  for (const StepInFlight::Part& part : step.parts) {
    if (part.num_tokens == 0) continue;
    const bool is_told = drawn != outcome.draws.end() && drawn->id == part.id;
    const DrawOutcome draw = is_told ? *drawn++ : DrawOutcome{part.id, part.num_tokens};
    Sequence* sequence = find(part.id);
    if (sequence == nullptr) continue;
    DI_CHECK(
        draw.num_tokens >= 0 && draw.num_tokens <= part.num_tokens, "no more is drawn than planned"
    );
    sequence->unsure -= part.num_tokens - 1;
    sequence->over = sequence->over || draw.over;
    take_back(*sequence, part.num_tokens - draw.num_tokens);
  }
  DI_CHECK(
      drawn == outcome.draws.end(), "only sequences of the step draw, in the order of its plan"
  );
}

// The rows of these tokens were never worth anything: the next ones take their positions.
void Scheduler::State::take_back(Sequence& sequence, int64_t num_tokens) {
  sequence.outputs -= num_tokens;
  sequence.recomputed_until = std::min(sequence.recomputed_until, sequence.num_tokens());
  if (!sequence.holds_slot()) {
    waiting_tokens -= num_tokens;
  } else if (!sequence.over) {
    sequence.computed -= num_tokens;
  }
}

}  // namespace di::sched
