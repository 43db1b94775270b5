// Who gets the prompt rows of a step: priorities, the two lanes, chunks, and forks behind a prompt.
#include <algorithm>

#include "base/check.h"
#include "sched/state.h"

namespace di::sched {

void Scheduler::State::plan_prefills(Planning& planning) {
  planning.prompt_rows_left = num_prompt_rows(planning);
  for (auto& [priority, level] : levels) {
    if (planning.prompt_rows_left == 0) break;
    plan_level(level, planning);
  }
}

int64_t Scheduler::State::num_prompt_rows(const Planning& planning) const {
  const int64_t decode_rows = planning.plan.num_decode_rows;
  const int64_t left = options.max_num_batched_tokens - decode_rows;
  if (decode_rows == 0 || options.max_step_seconds == 0) return left;
  return std::min(
      left,
      cost.prefill_rows_within(options.max_step_seconds, decode_rows, options.min_prefill_rows)
  );
}

// Half of the rows to each lane, beginning with the one whose turn it is; then the first takes what
// is left, those served already before others.
void Scheduler::State::plan_level(Level& level, Planning& planning) {
  const std::size_t first = planning.grants.size();
  const Sequence* head = level.waiting.first_due();
  if (head != nullptr && head->has_given_way()) level.turn = Lane::kDue;
  const Lane turn = level.turn;
  planning.admits_due = planning.admits_short = true;
  serve(turn, ceil_div(planning.prompt_rows_left, 2), level, planning);
  serve(other(turn), planning.prompt_rows_left, level, planning);
  for (std::size_t i = first; i < planning.grants.size() && planning.prompt_rows_left > 0; ++i)
    grow(planning.grants[i], planning.prompt_rows_left, planning);
  serve(turn, planning.prompt_rows_left, level, planning);
}

void Scheduler::State::serve(Lane lane, int64_t quota, Level& level, Planning& planning) {
  while (quota > 0) {
    Sequence* sequence = next_of(lane, level, planning);
    if (sequence == nullptr) return;
    Grant& grant = planning.grants.emplace_back();
    grant.sequence = sequence;
    quota -= grow(grant, quota, planning);
  }
}

// The lane's next sequence, with a slot and out of the candidates; or nullptr.
Sequence* Scheduler::State::next_of(Lane lane, Level& level, Planning& planning) {
  const bool by_due = lane == Lane::kDue;
  bool& admits = by_due ? planning.admits_due : planning.admits_short;
  Sequence* inside = by_due ? level.prefilling.first_due() : level.prefilling.first_short();
  Sequence* outside = by_due ? level.waiting.first_due() : level.waiting.first_short();
  if (!admits || !planning.admits) outside = nullptr;
  if (inside != nullptr && outside != nullptr) {
    const bool inside_first =
        by_due ? ByDue()(inside, outside) : level.is_shorter(*inside, *outside);
    if (inside_first) outside = nullptr;
  }
  if (outside != nullptr) {
    if (try_admit(*outside, planning)) {
      level.turn = other(lane);
    } else {
      admits = false;
      // Its turn, and it has waited long enough: what becomes free is kept for it.
      const bool is_owed = outside->has_given_way() || outside->due <= planning.now;
      if (by_due && level.turn == lane && is_owed) planning.admits = false;
      outside = nullptr;
    }
  }
  if (outside == nullptr && inside != nullptr) level.prefilling.erase(*inside, level.users);
  Sequence* next = outside != nullptr ? outside : inside;
  if (!by_due && next != nullptr) level.users.serve(next->spec.user);
  return next;
}

// Adds up to `max_rows` rows to the grant, as far as blocks allow; returns how many.
int64_t Scheduler::State::grow(Grant& grant, int64_t max_rows, Planning& planning) {
  Sequence& sequence = *grant.sequence;
  PlannedSequence& rows = grant.rows;
  if (rows.samples) return 0;
  if (rows.num_rows == 0) {
    rows.id = sequence.spec.id;
    rows.slot = sequence.holdings.slot.id();
    rows.admitted = sequence.computed == 0;
    rows.start = sequence.computed;
    rows.prompt_tokens = sequence.spec.prompt_tokens;
    rows.is_prefill = true;
  }
  int64_t wanted = std::min(max_rows, sequence.num_rows_left());
  if (sequence.spec.max_chunk_rows > 0)
    wanted = std::min(wanted, sequence.spec.max_chunk_rows - rows.num_rows);
  while (sequence.num_blocks() * cache::kBlockTokens < sequence.computed + wanted) {
    if (!take_block(sequence, rows.new_blocks)) break;
  }
  const int64_t room = sequence.num_blocks() * cache::kBlockTokens - sequence.computed;
  const int64_t given = std::min(wanted, room);
  if (given == 0) return 0;
  if (rows.num_rows == 0) join_step(sequence, planning);
  rows.num_rows += given;
  planning.prompt_rows_left -= given;
  num_recomputed_tokens +=
      std::clamp<int64_t>(sequence.recomputed_until - sequence.computed, 0, given);
  sequence.computed += given;
  level_of(sequence).charge(sequence.spec.user, given);
  if (sequence.num_rows_left() == 0) {
    rows.samples = true;
    complete_prompt(sequence, planning);
  }
  return given;
}

// The last row of the prompt is planned: a token is drawn from it, and one for each other choice.
void Scheduler::State::complete_prompt(Sequence& sequence, Planning& planning) {
  ++sequence.outputs;
  sequence.phase = Phase::kDecoding;
  for (Sequence* child : sequence.forks) {
    child->parent = nullptr;
    if (!try_fork(sequence, *child, planning)) enter_waiting(*child);
  }
  sequence.forks.clear();
}

bool Scheduler::State::try_fork(Sequence& parent, Sequence& child, Planning& planning) {
  const int64_t prompt = parent.spec.prompt_tokens;
  const bool has_tail = prompt % cache::kBlockTokens != 0;
  if (std::ssize(running) >= options.max_num_seqs) return false;
  if (has_tail && block_pool->num_free() == 0) return false;
  auto slot = slot_pool->take();
  if (!slot) return false;

  Fork fork;
  fork.parent = parent.spec.id;
  fork.child = child.spec.id;
  fork.parent_slot = parent.holdings.slot.id();
  fork.child_slot = slot->id();
  start_running(child, Phase::kDecoding, std::move(*slot));
  child.shared_blocks = prompt / cache::kBlockTokens;
  for (int64_t b = 0; b < child.shared_blocks; ++b) {
    const cache::BlockRef& block = parent.holdings.blocks[static_cast<std::size_t>(b)];
    fork.blocks.push_back(block.id());
    child.holdings.blocks.push_back(block.share());
  }
  if (has_tail) {
    take_block(child, fork.blocks);
    fork.tail_from = parent.holdings.blocks.back().id();
    fork.tail_to = fork.blocks.back();
  }
  child.computed = prompt;
  child.outputs = 1;
  join_step(child, planning);
  planning.demand.reset();
  planning.plan.forks.push_back(std::move(fork));
  return true;
}

}  // namespace di::sched
