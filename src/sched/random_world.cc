// Random requests and a suspicious device; see random_world.h.
#include "sched/random_world.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/math.h"
#include "cache/layout.h"

namespace di::sched {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

}  // namespace

void RandomDevice::take_slot(int32_t slot, SequenceId id) {
  for (const Uses& uses : in_flight_) {
    const auto use = uses.slots.find(slot);
    require(use == uses.slots.end() || use->second == id, "a slot in use is given to another");
  }
  in_flight_.back().slots[slot] = id;
}

void RandomDevice::take_block(int32_t block, SequenceId id) {
  for (const Uses& uses : in_flight_)
    require(!uses.blocks.contains(block), "a block in use is handed out");
  in_flight_.back().blocks[block].insert(id);
}

void RandomDevice::run(const PlannedSequence& planned, int64_t num_tokens) {
  DeviceSequence& sequence = sequences_[planned.id];
  if (planned.admitted) sequence = DeviceSequence{planned.slot, {}, 0, 0};
  require(planned.slot >= 0 && planned.slot == sequence.slot, "the slot stays the same");
  require(planned.num_rows > 0 && planned.start >= sequence.computed, "rows follow each other");
  const bool is_sure = in_flight_.size() == 1 || planned.is_prefill;
  require(!is_sure || planned.start == sequence.computed, "a start is told as far as it is known");
  take_slot(planned.slot, planned.id);
  for (const int32_t block : planned.new_blocks) {
    take_block(block, planned.id);
    sequence.blocks.push_back(block);
  }
  for (const int32_t block : sequence.blocks)
    in_flight_.back().blocks[block].insert(planned.id);
  sequence.computed += planned.is_prefill ? planned.num_rows : num_tokens;
  sequence.reached =
      std::max(sequence.reached, planned.start + planned.num_rows + planned.num_drafts);
  const int64_t need = ceil_div(sequence.reached, cache::kBlockTokens);
  require(std::ssize(sequence.blocks) == need, "a row has its block, and no block is early");
}

void RandomDevice::run(const Fork& fork) {
  const DeviceSequence& parent = sequences_.at(fork.parent);
  const bool has_tail = parent.computed % cache::kBlockTokens != 0;
  require(fork.parent_slot == parent.slot, "the parent's slot is told");
  require(has_tail == (fork.tail_to >= 0) && has_tail == (fork.tail_from >= 0), "a tail to copy");
  require(fork.blocks.size() == parent.blocks.size(), "a fork has its parent's length");
  take_slot(fork.child_slot, fork.child);
  const auto shared = fork.blocks.size() - (has_tail ? 1 : 0);
  require(
      std::equal(fork.blocks.begin(), fork.blocks.begin() + shared, parent.blocks.begin()),
      "full blocks are shared"
  );
  if (has_tail) {
    require(fork.tail_from == parent.blocks.back(), "the tail is the parent's last block");
    require(fork.tail_to == fork.blocks.back(), "the tail goes to the child's last block");
    take_block(fork.tail_to, fork.child);
  }
  for (const int32_t block : fork.blocks)
    in_flight_.back().blocks[block].insert(fork.child);
  sequences_[fork.child] =
      DeviceSequence{fork.child_slot, fork.blocks, parent.computed, parent.computed};
}

void RandomDevice::launch(const StepPlan& plan, const std::vector<RandomDraw>& draws) {
  in_flight_.emplace_back();
  auto draw = draws.begin();
  for (const PlannedSequence& planned : plan.sequences)
    run(planned, planned.samples ? draw++->outcome.num_tokens : 0);
  for (const Fork& fork : plan.forks)
    run(fork);
}

RandomWorld::RandomWorld(Choose choose)
    : choose_(std::move(choose)),
      blocks_(chance(2) ? 2 + choose_(8) : 10 + choose_(60)),
      slots_(1 + choose_(12)),
      options_(choose_options()),
      lag_(choose_(3)),
      num_drafts_(choose_(6)),
      scheduler_(options_, blocks_, slots_) {}

RandomWorld::~RandomWorld() = default;

SchedulerOptions RandomWorld::choose_options() {
  SchedulerOptions options;
  options.max_num_seqs = 1 + choose_(10);
  options.max_num_batched_tokens = options.max_num_seqs + choose_(chance(2) ? 8 : 600);
  options.max_step_seconds = chance(2) ? 0 : 0.02;
  options.min_prefill_rows = 1 + choose_(20);
  options.patience_seconds = static_cast<double>(choose_(4));
  return options;
}

void RandomWorld::arrive() {
  const int64_t capacity = blocks_.size() * cache::kBlockTokens;
  SequenceSpec spec;
  spec.user = choose_(4);
  spec.priority = static_cast<int>(choose_(3));
  spec.arrival = now_;
  if (chance(8)) spec.deadline = now_ + static_cast<double>(choose_(5));
  spec.prompt_tokens = 1 + choose_(std::min<int64_t>(capacity - 1, chance(3) ? 4000 : 300));
  if (chance(4)) {
    spec.prompt_tokens = align_up(spec.prompt_tokens, cache::kBlockTokens);
    spec.prompt_tokens = std::min(spec.prompt_tokens, capacity - 1);
  }
  spec.max_tokens = 1 + choose_(std::min<int64_t>(capacity - spec.prompt_tokens, 200));
  spec.max_chunk_rows = chance(4) ? 1 + choose_(100) : 0;
  spec.ready = !chance(8);
  const int64_t num_choices = chance(6) ? 1 + choose_(4) : 1;
  const SequenceId first = next_id_;
  for (int64_t choice = 0; choice < num_choices; ++choice) {
    spec.id = next_id_++;
    spec.fork_of = choice == 0 ? kNoSequence : first;
    scheduler_.add(spec);
    alive_[spec.id] = {spec, 1 + choose_(spec.max_tokens), 0};
    if (!spec.ready) unready_.insert(spec.id);
  }
}

void RandomWorld::abort_one() {
  const auto place = alive_.lower_bound(choose_(next_id_));
  const SequenceId id = place == alive_.end() ? alive_.begin()->first : place->first;
  scheduler_.finish(id);
  end(id);
}

void RandomWorld::end(SequenceId id) {
  require(alive_.erase(id) == 1, "a sequence ends once");
  unready_.erase(id);
}

void RandomWorld::make_ready(bool all) {
  while (!unready_.empty() && (all || chance(10))) {
    scheduler_.set_ready(*unready_.begin());
    unready_.erase(unready_.begin());
  }
}

void RandomWorld::turn(bool with_arrivals) {
  now_ += 0.001 * static_cast<double>(1 + choose_(30));
  if (with_arrivals && chance(3) && alive_.size() < kMostRequests) arrive();
  if (!alive_.empty() && chance(25)) abort_one();
  make_ready(!with_arrivals);
  plan();
  const bool must_retire = std::ssize(in_flight_) > lag_;
  while (!in_flight_.empty() && (must_retire || idle_ || chance(4))) {
    retire();
    if (std::ssize(in_flight_) <= lag_) break;
  }
}

// True when something could run if no step were in flight.
bool RandomWorld::may_run() const {
  return std::any_of(alive_.begin(), alive_.end(), [&](const auto& entry) {
    return !unready_.contains(entry.first) && !unready_.contains(entry.second.spec.fork_of);
  });
}

void RandomWorld::plan() {
  NumDrafts num_drafts;
  if (num_drafts_ > 0 && !chance(8)) num_drafts = [&](SequenceId) { return num_drafts_; };
  StepPlan plan = scheduler_.plan(now_, num_drafts);
  scheduler_.check_integrity();
  for (const SequenceId id : plan.expired)
    end(id);
  idle_ = !plan.has_rows();
  require(!idle_ || !in_flight_.empty() || !may_run(), "work is ready and nothing runs");
  if (idle_) return;
  check(plan);
  std::vector<RandomDraw> draws;
  for (const PlannedSequence& planned : plan.sequences)
    if (planned.samples) draws.push_back(draw(planned.id, planned.num_drafts));
  for (const Fork& fork : plan.forks)
    draws.push_back(draw(fork.child, 0));
  device_.launch(plan, draws);
  in_flight_.push_back({std::move(plan), std::move(draws)});
}

void RandomWorld::check(const StepPlan& plan) const {
  std::set<SequenceId> seen;
  int64_t num_decode_rows = 0;
  int64_t num_rows = 0;
  for (const PlannedSequence& planned : plan.sequences) {
    require(alive_.contains(planned.id), "only who is there has rows");
    require(!unready_.contains(planned.id), "only who is ready has rows");
    require(seen.insert(planned.id).second, "everybody is in a step once");
    const int64_t limit = alive_.at(planned.id).spec.max_chunk_rows;
    require(limit == 0 || planned.num_rows <= limit, "a limit of chunks holds");
    num_rows += planned.num_rows + planned.num_drafts;
    require(planned.num_drafts == 0 || !planned.is_prefill, "only who decodes has drafts");
    require(planned.num_drafts <= num_drafts_, "no more drafts than there are");
    num_decode_rows += planned.is_prefill ? 0 : planned.num_rows;
  }
  for (const Fork& fork : plan.forks)
    require(seen.insert(fork.child).second, "a fork has no row of its own");
  require(num_rows <= options_.max_num_batched_tokens, "the rows of a step are limited");
  require(num_decode_rows == plan.num_decode_rows, "decode rows are counted");
  require(num_rows == plan.num_rows(), "rows are counted");
  require(scheduler_.counts().num_running <= options_.max_num_seqs, "sequences are limited");
}

void RandomWorld::retire() {
  const auto [step, draws] = std::move(in_flight_.front());
  in_flight_.pop_front();
  device_.retire();
  StepOutcome outcome{
      .seconds = 0.001 + 0.0001 * static_cast<double>(step.num_rows()),
      .num_draft_rows = step.num_draft_rows};
  for (const RandomDraw& draw : draws)
    outcome.draws.push_back(draw.outcome);
  scheduler_.retire(step.step, outcome);
  scheduler_.check_integrity();
  for (const RandomDraw& draw : draws) {
    const auto entry = alive_.find(draw.outcome.id);
    if (entry == alive_.end() || !(draw.ends || draw.outcome.over)) continue;
    const bool is_last = entry->second.drawn == entry->second.spec.max_tokens;
    if (draw.ends && !is_last && chance(8)) continue;
    scheduler_.finish(draw.outcome.id);
    end(draw.outcome.id);
  }
}

// A sequence whose stop token went unseen stays for another step, that draws nothing for it. Now
// and then a draw is put off to the next step.
RandomDraw RandomWorld::draw(SequenceId id, int64_t num_drafts) {
  Request& request = alive_.at(id);
  const int64_t left = request.length - request.drawn;
  if (left == 0) return {.outcome = {id, 0, true}};
  if (num_drafts > 0 && chance(16)) return {.outcome = {id, 0}};
  const int64_t num_tokens = std::min(left, 1 + choose_(num_drafts + 1));
  request.drawn += num_tokens;
  return {.outcome = {id, num_tokens}, .ends = num_tokens == left};
}

void RandomWorld::drain() {
  int64_t rows = 0;
  for (const auto& [id, request] : alive_)
    rows += request.spec.prompt_tokens + 2 * request.spec.max_tokens;
  int64_t turns_left = 1000 + 2 * rows;
  while (scheduler_.has_work()) {
    require(turns_left-- > 0, "the queue drains within a bound of steps");
    turn(false);
  }
  require(alive_.empty(), "everybody ends");
  require(blocks_.num_free() == blocks_.size(), "every block returns");
  require(slots_.num_free() == slots_.size(), "every slot returns");
  require(scheduler_.counts().waiting_tokens == 0, "nothing waits");
}

}  // namespace di::sched
