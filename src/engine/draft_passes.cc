#include "engine/draft_passes.h"

#include <algorithm>
#include <utility>

#include "engine/host_draft_chooser.h"
#include "ops/place.h"

namespace di::engine {
namespace {

model::ForwardOptions forward_options(const DraftTrialOptions& options) {
  return {.replay = options.replay, .draft_context = true};
}

}  // namespace

std::vector<float> DraftPasses::prefill(DraftRunner& runner, bool draws) {
  const int64_t end = std::ssize(runner.tokens);
  std::vector<float> logits;
  for (int64_t begin = 0; begin < end; begin += options_.chunk) {
    const int64_t stop = std::min(end, begin + options_.chunk);
    const Arena::Scope scope(parts_.exec.scratch);
    model::Step step;
    const auto last = stop == end && draws ? model::LogitRows::kLast : model::LogitRows::kNone;
    step.sequences.push_back(input(runner, std::span(runner.tokens).first(stop), begin, last));
    logits = forward(step);
  }
  return logits;
}

std::vector<RunnerDrafts> DraftPasses::draft(
    const DraftRunners& runners, std::span<sampling::Sampler> samplers
) {
  const Arena::Scope scope(parts_.exec.scratch);
  std::vector<int32_t> anchors;
  std::vector<DraftingSequence> drafting;
  model::DraftStep step{.sequences = {}, .anchors = {}, .length = options_.length};
  for (const auto& runner : runners) {
    const View<const int32_t, 1> placed = ops::place(parts_.exec, runner->tokens);
    step.sequences.push_back(
        {.tokens = {placed.data, runner->tokens.size()},
         .slot = runner->state.slot(),
         .prompt_length = std::ssize(runner->course.prompt)}
    );
    sampling::Sampler& sampler = samplers[anchors.size()];
    anchors.push_back(runner->tokens.back());
    drafting.push_back(
        {&sampler, sampling::VerificationRule::kExactSeed, std::ssize(runner->tokens) - 1}
    );
  }
  step.anchors = ops::place(parts_.exec, anchors);
  HostDraftChooser chooser(std::move(drafting));
  const model::DraftOutput output = model::draft(
      parts_.model, step, parts_.cache, parts_.ops, parts_.exec, forward_options(options_), &chooser
  );
  const std::vector<int32_t> tokens = ops::fetch(parts_.exec, output.tokens);
  const std::vector<float> confidence = ops::fetch(parts_.exec, output.confidence);
  std::vector<RunnerDrafts> drafts(runners.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    drafts[i % drafts.size()].tokens.push_back(tokens[i]);
    drafts[i % drafts.size()].confidence.push_back(confidence[i]);
  }
  return drafts;
}

std::vector<float> DraftPasses::verify(
    const DraftRunners& runners, std::span<const RunnerDrafts> drafts
) {
  const Arena::Scope scope(parts_.exec.scratch);
  std::vector<std::vector<int32_t>> rows;
  model::Step step;
  for (std::size_t r = 0; r < runners.size(); ++r) {
    rows.push_back(runners[r]->tokens);
    rows.back().insert(rows.back().end(), drafts[r].tokens.begin(), drafts[r].tokens.end());
  }
  for (std::size_t r = 0; r < runners.size(); ++r) {
    const int64_t anchor = std::ssize(runners[r]->tokens) - 1;
    step.sequences.push_back(input(*runners[r], rows[r], anchor, model::LogitRows::kAll));
  }
  return forward(step);
}

model::SequenceInput DraftPasses::input(
    DraftRunner& runner, std::span<const int32_t> tokens, int64_t start, model::LogitRows logits
) {
  runner.state.reserve_tokens(std::ssize(tokens));
  return {
      .tokens = {ops::place(parts_.exec, tokens).data, tokens.size()},
      .start = start,
      .slot = runner.state.slot(),
      .block_table = ops::place(parts_.exec, runner.state.block_table()).data,
      .prompt_length = std::ssize(runner.course.prompt),
      .logits = logits};
}

std::vector<float> DraftPasses::forward(const model::Step& step) {
  return ops::fetch(
      parts_.exec,
      model::forward(
          parts_.model, step, parts_.cache, parts_.ops, parts_.exec, forward_options(options_)
      )
          .logits
  );
}

}  // namespace di::engine
