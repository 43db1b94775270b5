#include "engine/model_device.h"

#include <algorithm>
#include <exception>

#include "base/check.h"
#include "base/math.h"
#include "engine/clock.h"
#include "ops/place.h"
#include "ops/traced_ops.h"

namespace di::engine {
namespace {

TraceRecorder::Track track_of(const StepInputs& inputs) {
  return inputs.trace == nullptr ? TraceRecorder::Track() : inputs.trace->track("compute");
}

std::span<const float> row_of(const View<const float, 2>& logits, int64_t row) {
  return {logits.row(row), static_cast<std::size_t>(logits.dim(1))};
}

}  // namespace

ModelDevice::ModelDevice(const DeviceParts& parts)
    : model_(parts.model),
      ops_(parts.ops),
      cache_(parts.cache),
      owned_exec_(parts.pool, parts.ops.memory()),
      exec_(*owned_exec_),
      slot_tokens_(
          parts.ops.memory(), parts.cache.slot_pool().size(), parts.context, "the sequences' tokens"
      ),
      slot_blocks_(
          parts.ops.memory(),
          parts.cache.slot_pool().size(),
          ceil_div(parts.context, cache::kBlockTokens),
          "block tables"
      ),
      replay_(parts.replay),
      num_drafts_(parts.num_drafts),
      draft_temperatures_(parts.draft_temperatures),
      entries_(static_cast<std::size_t>(parts.cache.slot_pool().size())),
      expert_counter_(parts.model.config.moe.n_routed_experts) {}

StepResult ModelDevice::run(const StepInputs& inputs) {
  StepResult result;
  const double start = steady_seconds();
  try {
    result = run_checked(inputs);
  } catch (const std::exception& error) {
    result = {};
    result.error = error.what();
    end_all(inputs);
  }
  result.step = inputs.step;
  result.seconds = steady_seconds() - start;
  return result;
}

void ModelDevice::end_all(const StepInputs& inputs) {
  for (const SequenceOrder& order : inputs.sequences)
    entries_[static_cast<std::size_t>(order.rows.slot)].ended = true;
  for (const ForkOrder& order : inputs.forks)
    entries_[static_cast<std::size_t>(order.fork.child_slot)].ended = true;
}

StepResult ModelDevice::run_checked(const StepInputs& inputs) {
  step_.sequences.clear();
  runs_.clear();
  draws_.clear();
  scores_.clear();
  num_logit_rows_ = 0;
  expert_counter_.reset();

  StepResult result;
  result.sequences.resize(inputs.sequences.size() + inputs.forks.size());
  auto next = result.sequences.begin();
  const std::vector<int64_t> num_drafts = drafts_to_verify(inputs, [this](int32_t slot) {
    const Entry& entry = entries_[static_cast<std::size_t>(slot)];
    return entry.ended ? nullptr : &entry.drafts;
  });
  for (std::size_t i = 0; i < inputs.sequences.size(); ++i) {
    add_rows(inputs.sequences[i], num_drafts[i], *next++);
    result.num_draft_rows += num_drafts[i];
  }
  if (!step_.sequences.empty()) {
    const Arena::Scope scratch_scope(exec_.scratch);
    const Output output = compute(inputs);
    end_astray(output.finite);
    for (const ForkOrder& order : inputs.forks)
      add_fork(order, *next++);
    {
      const TraceScope scope(
          inputs.trace.get(), track_of(inputs), "draw", {{"rows", std::ssize(draws_)}}
      );
      score(output.logits);
      draw(output.logits);
    }
    if (num_drafts_ > 0) draft(inputs, result);
  }
  result.expert_max = expert_counter_.max();
  result.expert_mean = expert_counter_.mean();
  result.experts = expert_counter_.used();
  return result;
}

ModelDevice::Output ModelDevice::compute(const StepInputs& inputs) {
  const model::StepOutput output = forward(inputs);
  Output result{.finite = ops::fetch(exec_, output.finite), .fetched = {}, .logits = output.logits};
  if (!ops_.memory().is_host()) {
    result.fetched = ops::fetch(exec_, output.logits);
    result.logits.data = result.fetched.data();
  }
  return result;
}

model::StepOutput ModelDevice::forward(const StepInputs& inputs) {
  model::ForwardOptions options{.replay = replay_, .draft_context = inputs.draft_context};
  if (ops_.memory().is_host()) options.observer = &expert_counter_;
  if (inputs.trace == nullptr) {
    return model::forward(model_, step_, cache_, ops_, exec_, options);
  }
  const TraceRecorder::Track track = track_of(inputs);
  const TraceScope scope(inputs.trace.get(), track, "forward", {{"step", inputs.step}});
  ops::TracedOps traced(ops_, *inputs.trace, track);
  ops::Exec watched{exec_.pool, exec_.scratch, &traced, exec_.stream};
  return model::forward(model_, step_, cache_, traced.table(), watched, options);
}

void ModelDevice::end_astray(const std::vector<uint8_t>& finite) {
  for (std::size_t s = 0; s < runs_.size(); ++s) {
    const Run& run = runs_[s];
    if (finite[s] != 0 || run.num_drafts > 0) continue;  // of drafts, only what is drawn counts
    run.entry->ended = true;
    run.result->end = DrawEnd::kNotFinite;
  }
}

void ModelDevice::start(
    Entry& entry, std::shared_ptr<const Admission> admission, std::vector<int32_t> blocks
) {
  entry.tokens = admission->tokens;
  entry.block_table = std::move(blocks);
  entry.ended = false;
  entry.drafts.clear();
  const std::span tokens(entry.tokens);
  const auto num_prompt = static_cast<std::size_t>(admission->num_prompt_tokens);
  entry.sampler = std::make_unique<sampling::Sampler>(
      admission->sampling,
      static_cast<int32_t>(model_.config.tokens.eos_token_id),
      admission->seed,
      tokens.first(num_prompt),
      tokens.subspan(num_prompt)
  );
  entry.admission = std::move(admission);
}

void ModelDevice::add_rows(const SequenceOrder& order, int64_t num_drafts, SequenceResult& result) {
  const sched::PlannedSequence& rows = order.rows;
  result.id = rows.id;
  Entry& entry = entries_[static_cast<std::size_t>(rows.slot)];
  if (rows.admitted) {
    start(entry, order.admission, rows.new_blocks);
    slot_tokens_.restart(rows.slot);
    slot_blocks_.restart(rows.slot);
  } else {
    entry.block_table.insert(
        entry.block_table.end(), rows.new_blocks.begin(), rows.new_blocks.end()
    );
  }
  if (entry.ended) {
    result.skipped = rows.samples;
    return;
  }
  const int64_t known = std::ssize(entry.tokens);
  const int64_t start = rows.is_prefill ? rows.start : known - 1;
  const int64_t end = start + rows.num_rows + num_drafts;
  DI_CHECK(start + rows.num_rows <= known, "a row's token is known");
  const ScoredRows scored = scored_rows(*entry.admission, rows);
  entry.tokens.insert(
      entry.tokens.end(), entry.drafts.tokens.begin(), entry.drafts.tokens.begin() + num_drafts
  );
  const int32_t* tokens = slot_tokens_.update(rows.slot, entry.tokens, exec_.stream);
  slot_tokens_.truncate(rows.slot, known);
  step_.sequences.push_back(
      {.tokens = {tokens, static_cast<std::size_t>(end)},
       .start = start,
       .slot = rows.slot,
       .block_table = slot_blocks_.update(rows.slot, entry.block_table, exec_.stream),
       .prompt_length = entry.admission->num_prompt_tokens,
       .logits = scored.count > 0 || num_drafts > 0 ? model::LogitRows::kAll
                 : rows.samples                     ? model::LogitRows::kLast
                                                    : model::LogitRows::kNone}
  );
  runs_.push_back({&entry, &result, num_drafts});
  if (scored.count > 0) {
    scores_.push_back(
        {&entry,
         &result,
         num_logit_rows_ + scored.begin - rows.start,
         scored.begin + 1,
         scored.count}
    );
    num_logit_rows_ += rows.num_rows - (rows.samples ? 1 : 0);
  }
  if (!rows.samples) return;
  draws_.push_back({&entry, &result, num_logit_rows_, num_drafts, rows.slot, order.drafts});
  num_logit_rows_ += 1 + num_drafts;
}

void ModelDevice::add_fork(const ForkOrder& order, SequenceResult& result) {
  const sched::Fork& fork = order.fork;
  result.id = fork.child;
  cache_.copy_slot(fork.parent_slot, fork.child_slot, exec_.stream);
  if (fork.tail_from >= 0) cache_.copy_block(fork.tail_from, fork.tail_to, exec_.stream);
  slot_tokens_.restart(fork.child_slot);
  slot_blocks_.restart(fork.child_slot);
  Entry& child = entries_[static_cast<std::size_t>(fork.child_slot)];
  start(child, order.admission, fork.blocks);
  const Entry* parent = &entries_[static_cast<std::size_t>(fork.parent_slot)];
  const auto row = std::find_if(draws_.begin(), draws_.end(), [&](const PlannedDraw& draw) {
    return draw.entry == parent;
  });
  DI_CHECK(row != draws_.end(), "a fork happens in the step that draws its parent's first token");
  child.ended = parent->ended;
  const int64_t logits_row = row->logits_row;
  draws_.push_back({&child, &result, logits_row, 0, fork.child_slot, order.drafts});
}

void ModelDevice::draw(const View<const float, 2>& logits) {
  const auto run = [&](int64_t begin, int64_t end) {
    sampling::RowsScratch scratch;
    for (int64_t i = begin; i < end; ++i)
      draw_one(logits, draws_[static_cast<std::size_t>(i)], scratch);
  };
  const int64_t count = std::ssize(draws_);
  const int64_t num_threads = exec_.pool.num_threads();
  exec_.pool.parallel_for(count, std::max<int64_t>(1, ceil_div(count, num_threads)), run);
}

void ModelDevice::draw_one(
    const View<const float, 2>& logits, const PlannedDraw& planned, sampling::RowsScratch& scratch
) {
  Entry& entry = *planned.entry;
  SequenceResult& result = *planned.result;
  if (entry.ended) {  // its rows were not finite
    result.end = DrawEnd::kNotFinite;
    return;
  }
  const auto num_drafts = static_cast<std::size_t>(planned.num_drafts);
  entry.tokens.resize(entry.tokens.size() - num_drafts);
  const std::span laws(entry.drafts.laws);
  sampling::VerifiedDraws verified = sampling::verify_drafts(
      *entry.sampler,
      entry.admission->rule,
      {.logits = View<const float, 2>(
           logits.row(planned.logits_row), 1 + planned.num_drafts, logits.dim(1)
       ),
       .drafts = std::span(entry.drafts.tokens).first(num_drafts),
       .laws = laws.empty() ? laws : laws.first(num_drafts),
       .anchor_position = std::ssize(entry.tokens) - 1},
      scratch
  );
  entry.drafts.survivals.resize(num_drafts);
  result.drafts = {std::move(entry.drafts.survivals), verified.accepted};
  entry.drafts.clear();
  if (!verified.draws.back().finite) {
    result.end = DrawEnd::kNotFinite;
    verified.draws.pop_back();
  }
  for (const sampling::Draw& draw : verified.draws)
    entry.tokens.push_back(draw.token);
  if (result.end == DrawEnd::kGoesOn) {
    const auto eos = static_cast<int32_t>(model_.config.tokens.eos_token_id);
    result.end = end_behind(*entry.admission->sampling, eos, entry.tokens.back());
  }
  result.draws = std::move(verified.draws);
  entry.ended = result.end != DrawEnd::kGoesOn;
}

void ModelDevice::draft(const StepInputs& inputs, StepResult& result) {
  const double start = steady_seconds();
  std::vector<Entry*> entries;
  std::vector<DraftingSequence> drafting;
  std::vector<int32_t> anchors;
  model::DraftStep step{.sequences = {}, .anchors = {}, .length = num_drafts_};
  for (const PlannedDraw& planned : draws_) {
    Entry& entry = *planned.entry;
    if (!planned.drafts || entry.ended) continue;
    const int32_t* tokens = slot_tokens_.update(planned.slot, entry.tokens, exec_.stream);
    step.sequences.push_back(
        {.tokens = {tokens, entry.tokens.size()},
         .slot = planned.slot,
         .prompt_length = entry.admission->num_prompt_tokens}
    );
    anchors.push_back(entry.tokens.back());
    drafting.push_back({entry.sampler.get(), entry.admission->rule, std::ssize(entry.tokens) - 1});
    entries.push_back(&entry);
    planned.result->drafted = true;
  }
  if (entries.empty()) return;
  const TraceScope scope(
      inputs.trace.get(), track_of(inputs), "draft", {{"sequences", std::ssize(entries)}}
  );
  const Arena::Scope scratch_scope(exec_.scratch);
  step.anchors = ops::place(exec_, anchors);
  HostDraftChooser chooser(std::move(drafting));
  const model::DraftOutput output =
      model::draft(model_, step, cache_, ops_, exec_, {.replay = replay_}, &chooser);
  keep_drafts(output, entries, chooser);
  result.draft_seconds = steady_seconds() - start;
}

void ModelDevice::keep_drafts(
    const model::DraftOutput& output, const std::vector<Entry*>& entries, HostDraftChooser& chooser
) {
  const std::vector<int32_t> tokens = ops::fetch(exec_, output.tokens);
  const std::vector<float> confidence = ops::fetch(exec_, output.confidence);
  const auto count = std::ssize(entries);
  const FetchedDrafts drafts{
      View<const int32_t, 2>(tokens.data(), num_drafts_, count),
      View<const float, 2>(confidence.data(), num_drafts_, count)};
  for (int64_t s = 0; s < count; ++s) {
    Entry& entry = *entries[static_cast<std::size_t>(s)];
    entry.drafts = usable_drafts(drafts, s, draft_temperatures_, model_.config.vocab_size);
    entry.drafts.laws = chooser.take_laws(static_cast<std::size_t>(s));
    entry.drafts.rule = entry.admission->rule;
  }
}

void ModelDevice::score(const View<const float, 2>& logits) {
  for (const PlannedScores& planned : scores_) {
    if (planned.entry->ended) continue;
    std::vector<sampling::Draw>& scores = planned.result->prompt_scores;
    scores.resize(static_cast<std::size_t>(planned.count));
    const auto run = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const std::span row = row_of(logits, planned.logits_row + i);
        const auto token = static_cast<std::size_t>(planned.first_token + i);
        scores[static_cast<std::size_t>(i)] = sampling::score(
            row, planned.entry->tokens[token], planned.entry->admission->sampling->top_logprobs
        );
      }
    };
    exec_.pool.parallel_for(planned.count, 1, run);
  }
}

}  // namespace di::engine
