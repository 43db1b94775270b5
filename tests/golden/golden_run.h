// Runs the default model the way its golden files were made: one-shot prefill of a prompt, then one
// greedy token a step; or with drafts, for any request.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "sampling/draft_verifier.h"
#include "verify/model_run.h"

namespace di::golden {

/// A golden file of the default model.
inline Json read_golden(const std::string& name) {
  return Json::parse(read_text_file(std::string(DI_SEEDLING) + "/" + name), name);
}

template <class T>
std::vector<T> integers(const Json& list) {
  std::vector<T> values;
  for (const Json& value : list.as_array())
    values.push_back(static_cast<T>(value.as_integer()));
  return values;
}

/// A token and its logit.
struct Scored {
  int32_t id = 0;
  float logit = 0;
};

/// What a greedy run yields.
struct GreedyRun {
  std::vector<int32_t> tokens;           ///< chosen, the last one included
  std::vector<std::vector<Scored>> top;  ///< the five best of every step, best first
  std::vector<double> prompt_nll;        ///< −ln p of each prompt token but the first

  /// How far ahead the token of step i was.
  float margin(std::size_t i) const { return top[i][0].logit - top[i][1].logit; }
};

/// How a run drafts.
struct Drafting {
  int64_t length = 5;
  sampling::VerificationRule rule = sampling::VerificationRule::kExactSeed;
  bool drawn = true;  ///< from the drafter's law for the request; else the drafter's best tokens
};

/// What a run with drafts yields.
struct DraftedRun {
  std::vector<int32_t> tokens;
  int64_t steps = 0;     ///< that verified drafts
  int64_t accepted = 0;  ///< drafts, in all of them
};

/// A lone sequence whose newest rows can be taken back, on one thread.
class DraftingSequence {
 public:
  DraftingSequence(const model::Model& model, const ops::OpTable& ops, int64_t num_tokens);

  /// The logits behind each of the newest `rows` of `tokens` [rows, vocab_size], which are computed
  /// now.
  std::vector<float> logits_behind(std::span<const int32_t> tokens, int64_t rows);

  /// Drafts behind `tokens`, of which all but the last one were computed; the chooser sees each.
  void draft(const std::vector<int32_t>& tokens, int64_t length, model::DraftChooser& chooser);

 private:
  const model::Model& model_;
  const ops::OpTable& ops_;
  ThreadPool pool_{1};
  Arena scratch_;
  ops::Exec exec_{pool_, scratch_};
  cache::KvCache cache_;
  cache::SequenceState state_;
};

/// One sequence alone on a model, with caches and threads of its own.
class GoldenRunner {
 public:
  GoldenRunner(const verify::LoadedModel& model, const ops::OpTable& ops)
      : model_(model.model), ops_(ops) {}

  /// Runs `prompt` and then `steps` tokens. With `forced` the model goes on after these instead of
  /// its own choices.
  GreedyRun greedy(
      std::span<const int32_t> prompt, std::size_t steps, std::span<const int32_t> forced = {}
  ) const;

  /// The drafts behind each of `outputs` but the last, `count` of them at most: entry i was drafted
  /// when `prompt` and outputs[0 … i] were computed, from outputs[i + 1] on.
  std::vector<model::Drafts> drafts(
      std::span<const int32_t> prompt, std::span<const int32_t> outputs, std::size_t count
  ) const;

  /// Runs `prompt` and then tokens of a request until one ends it or there are max_tokens: a step
  /// for the newest token and the drafts behind it. Rejected rows are overwritten by the next
  /// step's.
  DraftedRun drafted(
      std::span<const int32_t> prompt, const sampling::SamplingParams& params, const Drafting& how
  ) const;

  /// −ln p of each token but the first, from one prefill.
  std::vector<double> nll(std::span<const int32_t> tokens) const;

 private:
  const model::Model& model_;
  const ops::OpTable& ops_;
};

}  // namespace di::golden
