// Counting: what the scheduler reports, and the proof that nothing is lost or held twice.
#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "sched/state.h"

namespace di::sched {
namespace {

// Counts the shares of one pool as the holders see them.
class Shares {
 public:
  void add(const cache::IdRef& ref) {
    if (ref) ++counts_[ref.id()];
  }
  void compare(const cache::IdPool& pool) const {
    for (const auto& [id, count] : counts_)
      DI_CHECK(pool.num_shares(id) == count, "every share of an id has its holder");
    DI_CHECK(
        static_cast<int64_t>(counts_.size()) == pool.size() - pool.num_free(),
        "an id that nobody holds is free"
    );
  }

 private:
  std::unordered_map<int32_t, int64_t> counts_;
};

void check_sequence(const Sequence& sequence) {
  const int64_t held = sequence.num_blocks() * cache::kBlockTokens;
  DI_CHECK(sequence.outputs <= sequence.spec.max_tokens, "no token beyond the limit is drawn");
  DI_CHECK(sequence.computed <= held, "every row has its block");
  const int64_t reached = std::max(sequence.computed, sequence.reached);
  DI_CHECK(held < reached + cache::kBlockTokens, "no block is taken before its rows");
  DI_CHECK(sequence.unsure >= 0 && sequence.unsure <= sequence.outputs, "drafts count as outputs");
  DI_CHECK(sequence.holds_slot() == bool(sequence.holdings.slot), "who runs has a slot");
  DI_CHECK(sequence.holds_slot() || sequence.holdings.empty(), "who waits holds nothing");
  if (sequence.phase == Phase::kDecoding && !sequence.over)
    DI_CHECK(sequence.num_rows_left() == 1, "who decodes has one row left");
  if (sequence.phase == Phase::kPrefilling || sequence.phase == Phase::kWaiting)
    DI_CHECK(sequence.num_rows_left() >= 1 && !sequence.over, "a prompt has rows left");
}

}  // namespace

SchedulerCounts Scheduler::State::counts() const {
  SchedulerCounts counts;
  counts.num_running = std::ssize(running);
  counts.num_waiting = std::ssize(sequences) - counts.num_running;
  for (const Sequence* sequence : running)
    counts.num_chunked += sequence->phase == Phase::kPrefilling;
  counts.waiting_tokens = waiting_tokens;
  counts.blocks_total = block_pool->size();
  counts.blocks_used = counts.blocks_total - block_pool->num_free();
  counts.slots_total = slot_pool->size();
  counts.slots_used = counts.slots_total - slot_pool->num_free();
  counts.num_preemptions = num_preemptions;
  counts.num_recomputed_tokens = num_recomputed_tokens;
  return counts;
}

void Scheduler::State::check_integrity() const {
  Shares blocks;
  Shares slots;
  const auto count = [&](const cache::Holdings& holdings) {
    slots.add(holdings.slot);
    for (const cache::BlockRef& block : holdings.blocks)
      blocks.add(block);
  };
  std::unordered_map<SequenceId, int64_t> steps_of;
  int64_t number = next_step - std::ssize(in_flight);
  for (const StepInFlight& step : in_flight) {
    DI_CHECK(step.step == number++, "steps retire in the order of their plans");
    for (const cache::Holdings& holdings : step.released)
      count(holdings);
    for (const StepInFlight::Part& part : step.parts)
      ++steps_of[part.id];
  }
  int64_t num_with_slot = 0;
  int64_t rows_waiting = 0;
  for (const auto& [id, sequence] : sequences) {
    check_sequence(*sequence);
    count(sequence->holdings);
    DI_CHECK(sequence->steps_in_flight == steps_of[id], "a sequence knows its steps in flight");
    num_with_slot += sequence->holds_slot();
    if (!sequence->holds_slot()) rows_waiting += sequence->num_rows_left();
  }
  blocks.compare(*block_pool);
  slots.compare(*slot_pool);
  DI_CHECK(num_with_slot == std::ssize(running), "who holds a slot is running");
  DI_CHECK(rows_waiting == waiting_tokens, "tokens that wait are counted");
  DI_CHECK(std::is_sorted(running.begin(), running.end(), BySeniority()), "running by seniority");
}

}  // namespace di::sched
