// The drafts that wait in a slot for the next step, and how many of them a step verifies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_inputs.h"
#include "sampling/draft_law.h"
#include "sched/draft_budget.h"

namespace di::engine {

/// Drafts of one sequence behind its newest token.
struct SlotDrafts {
  std::vector<int32_t> tokens = {};
  sched::Survivals survivals = {};  ///< of each: the estimated probability that it and all before
                                    ///< it are accepted
  std::vector<sampling::DraftLaw> laws = {};  ///< of each, for block verification; or empty

  int64_t count() const { return std::ssize(tokens); }
  void clear() { *this = {}; }
};

/// The drafts up to the first one that is none: a token outside the vocabulary or a confidence that
/// is not finite, as a drafter with broken numbers makes them.
SlotDrafts usable_drafts(
    std::span<const int32_t> tokens,
    std::span<const float> confidence,
    std::span<const double> temperatures,
    int64_t vocab_size
);

/// How a choice among drafts may look at them.
enum class DraftSight {
  kBehind,  ///< block verification: whether a draft is verified depends on those before it alone
  kAll,     ///< everything is verified by exact seed, whose texts no choice changes
};

/// How many drafts each sequence of the step verifies: of those that it holds as many as its plan
/// and the step allow, and with costs those that promise most tokens a second. `held`: for each of
/// inputs.sequences; nullptr: none.
std::vector<int64_t> drafts_to_verify(
    const StepInputs& inputs, std::span<const SlotDrafts* const> held, DraftSight sight
);

}  // namespace di::engine
