// DraftPasses: the model's side of trials of drafts (draft_trial.h): prompts, drafts of many
// sequences at once, and the rows that verify them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/kv_cache.h"
#include "engine/draft_trial.h"
#include "sampling/sampler.h"

namespace di::engine {

/// A course on its way.
struct DraftRunner {
  DraftRunner(const DraftCourse& what, std::size_t place, cache::KvCache& cache)
      : course(what), index(place), tokens(what.prompt), state(cache) {}

  int64_t num_outputs() const { return std::ssize(tokens) - std::ssize(course.prompt); }

  const DraftCourse& course;
  std::size_t index;            ///< of the course
  std::vector<int32_t> tokens;  ///< the last one is the anchor: no step was given it yet
  cache::SequenceState state;
  bool done = false;
};

using DraftRunners = std::vector<std::unique_ptr<DraftRunner>>;

/// What is drafted behind one anchor.
struct RunnerDrafts {
  std::vector<int32_t> tokens;    ///< [length]
  std::vector<float> confidence;  ///< [length]
};

/// Thread: one at a time.
class DraftPasses {
 public:
  /// Both outlive it.
  DraftPasses(const DraftTrialParts& parts, const DraftTrialOptions& options)
      : parts_(parts), options_(options) {}

  /// Computes the prompt; with `draws` the logits [vocab_size] of its last row, else nothing.
  std::vector<float> prefill(DraftRunner& runner, bool draws);

  /// Drafts for each runner, chosen by the sampler in the same place, which stays as it was.
  std::vector<RunnerDrafts> draft(
      const DraftRunners& runners, std::span<sampling::Sampler> samplers
  );

  /// Logits [runners, 1 + length, vocab_size] of the anchors and the drafts behind them.
  std::vector<float> verify(const DraftRunners& runners, std::span<const RunnerDrafts> drafts);

 private:
  model::SequenceInput input(
      DraftRunner& runner, std::span<const int32_t> tokens, int64_t start, model::LogitRows logits
  );
  std::vector<float> forward(const model::Step& step);

  const DraftTrialParts& parts_;
  const DraftTrialOptions& options_;
};

}  // namespace di::engine
