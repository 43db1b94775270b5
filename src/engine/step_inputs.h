// What travels between the engine and the thread that computes: one step's orders, and its results.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/trace.h"
#include "sampling/params.h"
#include "sampling/sampler.h"
#include "sampling/verification.h"
#include "sched/draft_costs.h"
#include "sched/scheduler.h"

namespace di::engine {

/// All that the device needs to start a sequence in a slot, or to start it again after it was
/// preempted.
struct Admission {
  std::shared_ptr<const sampling::SamplingParams> sampling = {};
  uint64_t seed = 0;                     ///< of this choice
  sampling::VerificationRule rule = {};  ///< by which its drafts are verified
  std::vector<int32_t> tokens = {};      ///< prompt, then the outputs so far
  int64_t num_prompt_tokens = 0;
  bool scores_prompt = false;       ///< prompt logprobs are wanted of this choice
  int64_t num_prompt_logprobs = 0;  ///< prompt tokens that have been scored before
};

/// One sequence's rows. Their tokens are already on the device: admitted with the sequence, or
/// drawn or drafted by an earlier step. Where a decode row lies the device knows better than the
/// plan.
struct SequenceOrder {
  sched::PlannedSequence rows = {};
  std::shared_ptr<const Admission> admission = {};  ///< when rows.admitted
  bool drafts = false;  ///< behind its draws the device drafts for the next step
  double trust = 1;     ///< how far the survivals of the drafts that it has are sched::believed()
};

/// Rows of a step whose logits score the prompt tokens behind them.
struct ScoredRows {
  int64_t begin = 0;  ///< position of the first
  int64_t count = 0;
};

/// The rows that score prompt tokens which were not scored before.
inline ScoredRows scored_rows(const Admission& admission, const sched::PlannedSequence& rows) {
  if (!admission.scores_prompt) return {};
  const int64_t begin = std::max(rows.start, admission.num_prompt_logprobs);
  const int64_t end = std::min(rows.start + rows.num_rows, admission.num_prompt_tokens - 1);
  return {begin, std::max<int64_t>(0, end - begin)};
}

/// A choice that starts behind another one's prompt.
struct ForkOrder {
  sched::Fork fork = {};
  std::shared_ptr<const Admission> admission = {};
  bool drafts = false;  ///< as in SequenceOrder
};

/// One step's orders.
struct StepInputs {
  int64_t step = 0;
  std::vector<SequenceOrder> sequences = {};
  std::vector<ForkOrder> forks = {};
  bool draft_context = false;  ///< the pass leaves the drafter what it looks back on
  int64_t max_verified = 0;  ///< drafts of a sequence at most; those that are left over are dropped
  std::shared_ptr<const sched::StepCosts> costs = {};  ///< to choose by how many drafts are
                                                       ///< verified; nullptr: as many as may be
  std::shared_ptr<TraceRecorder> trace = {};           ///< records the step; nullptr: nobody does
  bool at_once = false;  ///< set by the runner: the orders were there when the step before was done
};

/// How a draw left its sequence.
enum class DrawEnd {
  kGoesOn,
  kEos,
  kStopToken,
  kNotFinite,  ///< nothing was drawn; the sequence is over
};

/// How a drawn token leaves a choice with these parameters.
inline DrawEnd end_behind(const sampling::SamplingParams& params, int32_t eos, int32_t token) {
  if (!sampling::ends_choice(params, eos, token)) return DrawEnd::kGoesOn;
  return token == eos ? DrawEnd::kEos : DrawEnd::kStopToken;
}

/// What became of one sequence's drafts in a step.
struct DraftResult {
  sched::Survivals survivals = {};  ///< of each draft that was verified: the estimated probability
                                    ///< that it and all before it are accepted
  int64_t num_accepted = 0;

  int64_t num_verified() const { return std::ssize(survivals); }
};

/// One sequence's results.
struct SequenceResult {
  sched::SequenceId id = sched::kNoSequence;
  bool skipped = false;  ///< draws were planned, but the device had ended the sequence before
  std::vector<sampling::Draw> draws = {};  ///< new tokens: none behind an inner chunk, or skipped
  DrawEnd end = DrawEnd::kGoesOn;          ///< after all of them
  DraftResult drafts = {};
  bool drafted = false;                            ///< drafts were made for the next step
  std::vector<sampling::Draw> prompt_scores = {};  ///< of the next prompt tokens
};

/// One step's results.
struct StepResult {
  int64_t step = 0;
  std::vector<SequenceResult> sequences = {};  ///< those of the plan, then the forks
  std::string error = {};                      ///< not empty: the step failed and yielded nothing
  double seconds = 0;                          ///< that such a step takes among others like it:
                                               ///< forward, draws and drafts
  double draft_seconds = 0;                    ///< of these, for drafts; 0: unknown, or none made
  bool is_typical = true;      ///< false: other steps of its size will not take as long
  int64_t num_draft_rows = 0;  ///< drafts that were verified
  int64_t launch_waits = 0;  ///< calls of its launch that kept the processor waiting for the device
  double expert_max = 0;     ///< tokens of each layer's busiest expert, summed over layers
  double expert_mean = 0;    ///< tokens of each layer's mean expert, summed over layers
  double experts = 0;        ///< that a layer's tokens fell on, mean over layers

  /// What such a step takes; 0: this one does not tell.
  double typical_seconds() const { return is_typical ? seconds : 0; }
};

}  // namespace di::engine
