// What becomes of drafts: the model drafts along texts, the target judges every draft, and nothing
// is decided by it. What a calibration is fitted to.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/model.h"
#include "sampling/params.h"
#include "sched/draft_calibration.h"

namespace di::engine {

/// A text to draft along.
struct DraftCourse {
  std::vector<int32_t> prompt = {};  ///< at least one token; nothing is drafted inside
  std::vector<int32_t> text = {};    ///< what follows, whatever the target would draw; empty: what
                                     ///< it draws, up to an end token or max_tokens
  sampling::SamplingParams sampling = {};  ///< how the target draws; stop strings do nothing
  uint64_t seed = 0;                       ///< of its random numbers
};

/// Where trials run.
struct DraftTrialParts {
  const model::Model& model;  ///< loaded with its drafter
  cache::KvCache& cache;      ///< room for `num_sequences` of `context` tokens
  const ops::OpTable& ops;
  ops::Exec& exec;
};

struct DraftTrialOptions {
  int64_t length = 0;         ///< drafts of a block
  int64_t num_sequences = 1;  ///< that share a step
  int64_t context = 0;        ///< tokens of a sequence, its last drafts included
  int64_t chunk = 0;          ///< prompt rows of a step
  model::Replay replay = {};
};

/// Told how many of all tokens have been passed; may throw to end the trials.
using DraftTrialProgress = std::function<void(int64_t done, int64_t total)>;

/// Goes along every course in steps, as an engine does that verifies all drafts by the exact-seed
/// rule: behind an anchor `length` tokens are drafted, and the target draws at the anchor and
/// behind each draft that it accepts. The next anchor is the first token that the drafts did not
/// foretell: of the course's text, or the target's own last draw. An end token ends its block.
/// Returns the blocks of each course, in order; they do not depend on the other courses.
///
/// A course ends early where its context does, or where a row is not finite.
/// Errors: Error{kInvalidArgument} for a prompt that leaves no room for drafts; as draft() has
/// them.
std::vector<sched::JudgedText> run_draft_trials(
    const DraftTrialParts& parts,
    std::span<const DraftCourse> courses,
    const DraftTrialOptions& options,
    const DraftTrialProgress& progress = {}
);

}  // namespace di::engine
