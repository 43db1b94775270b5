// One row to every sequence that decodes.
#include <algorithm>

#include "sched/state.h"

namespace di::sched {

void Scheduler::State::plan_decodes(Planning& planning) {
  StepPlan& plan = planning.plan;
  plan.sequences.reserve(running.size());
  for (Sequence* sequence : running) {
    if (sequence->phase != Phase::kDecoding || sequence->may_be_complete()) continue;
    PlannedSequence rows;
    if (sequence->lacks_block()) {
      if (!take_block(*sequence, rows.new_blocks)) continue;
      level_of(*sequence).charge(sequence->spec.user, cache::kBlockTokens);
    }
    rows.id = sequence->spec.id;
    rows.slot = sequence->holdings.slot.id();
    rows.start = sequence->computed++;
    rows.num_rows = 1;
    rows.prompt_tokens = sequence->spec.prompt_tokens;
    rows.samples = true;
    ++sequence->outputs;
    sequence->reached = std::max(sequence->reached, sequence->computed);
    join_step(*sequence, planning);
    plan.sequences.push_back(std::move(rows));
    ++plan.num_decode_rows;
  }
}

bool Scheduler::State::take_block(Sequence& sequence, std::vector<int32_t>& new_blocks) {
  auto block = block_pool->take();
  if (!block) return false;
  new_blocks.push_back(block->id());
  sequence.holdings.blocks.push_back(std::move(*block));
  return true;
}

}  // namespace di::sched
