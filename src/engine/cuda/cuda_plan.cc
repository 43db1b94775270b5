// Orders become rows, draws and drafts: what is told to the device before the pass, and where the
// results of each sequence will be.
#include <algorithm>
#include <utility>

#include "engine/cuda/cuda_device.h"

namespace di::engine::cuda {

void CudaDevice::start(int32_t slot, std::shared_ptr<const Admission> admission, InFlight& flight) {
  Entry& entry = entries_[static_cast<std::size_t>(slot)];
  const std::span<const int32_t> tokens(admission->tokens);
  const auto num_prompt = static_cast<std::size_t>(admission->num_prompt_tokens);
  upload(slots_.tokens(slot), tokens, flight);
  entry.sampling = std::make_unique<sampling::cuda::DeviceSlot>(
      *admission->sampling,
      static_cast<int32_t>(parts_.model.config.tokens.eos_token_id),
      admission->seed,
      tokens.first(num_prompt),
      tokens.subspan(num_prompt),
      parts_.model.config.vocab_size,
      slots_.area(slot),
      flight.buffers.uploads(),
      exec_.stream
  );
  upload(slots_.params() + slot, std::span(&entry.sampling->params(), 1), flight);
  entry.num_blocks = 0;
  entry.num_tokens = std::ssize(tokens);
  entry.drafts.clear();
  entry.ended = false;
  entry.admission = std::move(admission);
}

void CudaDevice::append_blocks(int32_t slot, const std::vector<int32_t>& blocks, InFlight& flight) {
  Entry& entry = entries_[static_cast<std::size_t>(slot)];
  upload(slots_.blocks(slot) + entry.num_blocks, std::span<const int32_t>(blocks), flight);
  entry.num_blocks += std::ssize(blocks);
}

void CudaDevice::plan_rows(const SequenceOrder& order, int64_t num_drafts, InFlight& flight) {
  const sched::PlannedSequence& rows = order.rows;
  SequenceResult& result = flight.result.sequences.emplace_back();
  PlannedResult& planned = flight.planned.emplace_back();
  result.id = rows.id;
  planned.slot = rows.slot;
  if (rows.admitted) start(rows.slot, order.admission, flight);
  append_blocks(rows.slot, rows.new_blocks, flight);
  Entry& entry = entries_[static_cast<std::size_t>(rows.slot)];
  if (entry.ended) {
    result.skipped = rows.samples;
    return;
  }
  const Admission& admission = *entry.admission;
  const ScoredRows scored = scored_rows(admission, rows);
  const int64_t start = drafts_ && !rows.is_prefill ? entry.num_tokens - 1 : rows.start;
  const int64_t num_rows = rows.num_rows + num_drafts;
  const bool all_logits = scored.count > 0 || num_drafts > 0;
  const int64_t first_logits = std::ssize(draw_rows_);
  planned.sequence = std::ssize(step_.sequences);
  step_.sequences.push_back(
      {.tokens = {slots_.tokens(rows.slot), static_cast<std::size_t>(start + num_rows)},
       .start = start,
       .slot = rows.slot,
       .block_table = slots_.blocks(rows.slot),
       .prompt_length = admission.num_prompt_tokens,
       .logits = all_logits     ? model::LogitRows::kAll
                 : rows.samples ? model::LogitRows::kLast
                                : model::LogitRows::kNone}
  );
  const int64_t num_logits = all_logits ? num_rows : int64_t{rows.samples};
  draw_rows_.resize(static_cast<std::size_t>(first_logits + num_logits));
  score_tokens_.resize(draw_rows_.size(), -1);
  score_tops_.resize(draw_rows_.size(), 0);
  most_ = std::max(most_, admission.sampling->top_logprobs);
  for (int64_t i = 0; i < scored.count; ++i) {
    const auto at = static_cast<std::size_t>(first_logits + scored.begin - rows.start + i);
    score_tokens_[at] = admission.tokens[static_cast<std::size_t>(scored.begin + 1 + i)];
    score_tops_[at] = static_cast<int32_t>(admission.sampling->top_logprobs);
    any_scores_ = true;
  }
  planned.score_row = first_logits + scored.begin - rows.start;
  planned.num_scores = scored.count;
  planned.first_token = scored.begin + 1;
  planned.verified = std::exchange(entry.drafts, {});
  planned.verified.tokens.resize(static_cast<std::size_t>(num_drafts));
  planned.verified.survivals.resize(static_cast<std::size_t>(num_drafts));
  if (rows.samples) plan_draws(order, start + rows.num_rows, planned);
}

// `end`: tokens of the sequence, without its drafts.
void CudaDevice::plan_draws(const SequenceOrder& order, int64_t end, PlannedResult& planned) {
  int32_t* place = slots_.tokens(planned.slot) + end;
  Entry& entry = entries_[static_cast<std::size_t>(planned.slot)];
  const bool is_plain = is_plainly_greedy(entry.sampling->params());
  planned.draw_row = std::ssize(draw_rows_) - 1 - planned.verified.count();
  if (!drafts_) {
    draw_rows_.back() = {
        .position = end - 1, .slot = planned.slot, .is_plain = is_plain, .place = place};
    return;
  }
  // A draw without drafts is sure to be one token, or the sequence's end.
  if (planned.verified.count() == 0) ++entry.num_tokens;
  planned.drawn = std::ssize(blocks_);
  blocks_.push_back(
      {.position = end - 1,
       .drafts = place,
       .place = place,
       .records = entry.by_block() ? slots_.records(planned.slot) : nullptr,
       .first_row = static_cast<int32_t>(planned.draw_row),
       .num_drafts = static_cast<int32_t>(planned.verified.count()),
       .slot = planned.slot,
       .is_plain = is_plain}
  );
  if (order.drafts) plan_draft(planned.slot, end, planned);
}

void CudaDevice::plan_draft(int32_t slot, int64_t known, PlannedResult& planned) {
  const Entry& entry = entries_[static_cast<std::size_t>(slot)];
  planned.drafting = std::ssize(drafting_);
  drafting_.push_back(
      {.slot = slot,
       .known = known,
       .prompt_length = entry.admission->num_prompt_tokens,
       .drawn = planned.drawn,
       .by_block = entry.by_block(),
       .has_edits = has_edits(*entry.admission->sampling)}
  );
}

void CudaDevice::plan_fork(const ForkOrder& order, InFlight& flight) {
  const sched::Fork& fork = order.fork;
  flight.result.sequences.emplace_back().id = fork.child;
  start(fork.child_slot, order.admission, flight);
  append_blocks(fork.child_slot, fork.blocks, flight);
  PlannedResult& planned = flight.planned.emplace_back();
  planned.slot = fork.child_slot;
  planned.draw_row = std::ssize(draw_rows_);
  const auto end = std::ssize(order.admission->tokens);
  Entry& entry = entries_[static_cast<std::size_t>(fork.child_slot)];
  draw_rows_.push_back(
      {.position = end - 1,
       .slot = fork.child_slot,
       .is_plain = is_plainly_greedy(entry.sampling->params()),
       .place = slots_.tokens(fork.child_slot) + end}
  );
  most_ = std::max(most_, order.admission->sampling->top_logprobs);
  if (!drafts_) return;
  ++entry.num_tokens;
  planned.drawn = std::ssize(blocks_) + num_forks_++;
  if (order.drafts) plan_draft(fork.child_slot, end, planned);
}

}  // namespace di::engine::cuda
