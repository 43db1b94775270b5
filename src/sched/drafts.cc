// Rows for drafts: what a step has left, shared among those who decode. Prompts go first, since
// their rows are sure to be worth something.
#include <algorithm>

#include "sched/state.h"

namespace di::sched {

void Scheduler::State::plan_drafts(Planning& planning, const NumDrafts& num_drafts) {
  StepPlan& plan = planning.plan;  // its sequences are those that decode, so far
  const std::vector<int64_t> shares = share_draft_rows(planning, num_drafts);
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    if (shares[i] == 0) continue;
    PlannedSequence& rows = plan.sequences[i];
    Sequence& sequence = *find(rows.id);
    rows.num_drafts = cover_drafts(sequence, shares[i], rows);
    sequence.computed += rows.num_drafts;
    sequence.outputs += rows.num_drafts;
    sequence.unsure += rows.num_drafts;
    sequence.reached = std::max(sequence.reached, sequence.computed);
    plan.num_draft_rows += rows.num_drafts;
  }
}

// Drafts of each sequence of the plan: no more than it can still draw, and the first one of
// everybody before the second one of anybody.
std::vector<int64_t> Scheduler::State::share_draft_rows(
    const Planning& planning, const NumDrafts& num_drafts
) {
  const std::vector<PlannedSequence>& planned = planning.plan.sequences;
  int64_t rows_left = options.max_num_batched_tokens - planning.plan.num_decode_rows;
  for (const Grant& grant : planning.grants)
    rows_left -= grant.rows.num_rows;
  std::vector<int64_t> wanted;
  wanted.reserve(planned.size());
  for (const PlannedSequence& rows : planned) {
    const Sequence& sequence = *find(rows.id);
    wanted.push_back(std::min(num_drafts(rows.id), sequence.spec.max_tokens - sequence.outputs));
  }
  std::vector<int64_t> shares(planned.size(), 0);
  for (bool any = true; any && rows_left > 0;) {
    any = false;
    for (std::size_t i = 0; i < shares.size() && rows_left > 0; ++i) {
      if (shares[i] >= wanted[i]) continue;
      ++shares[i];
      --rows_left;
      any = true;
    }
  }
  return shares;
}

// How many of the drafts have a block, of those that the sequence holds or one more.
int64_t Scheduler::State::cover_drafts(Sequence& sequence, int64_t wanted, PlannedSequence& rows) {
  const auto room = [&] { return sequence.num_blocks() * cache::kBlockTokens - sequence.computed; };
  while (room() < wanted && block_pool->num_free() > std::ssize(running)) {
    take_block(sequence, rows.new_blocks);
    level_of(sequence).charge(sequence.spec.user, cache::kBlockTokens);
  }
  return std::min(wanted, room());
}

}  // namespace di::sched
