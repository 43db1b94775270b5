// The drafts that wait in a slot for the next step, and how many of them a step verifies.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/step_inputs.h"
#include "sampling/draft_law.h"
#include "sched/draft_budget.h"
#include "tensor/view.h"

namespace di::engine {

/// Drafts of one sequence behind its newest token.
struct SlotDrafts {
  std::vector<int32_t> tokens = {};
  sched::Survivals survivals = {};  ///< of each: the estimated probability that it and all before
                                    ///< it are accepted
  std::vector<sampling::DraftLaw> laws = {};  ///< of each, for block verification; or empty
  sampling::VerificationRule rule = {};       ///< that they will be verified by

  int64_t count() const { return std::ssize(tokens); }
  void clear() { *this = {}; }
};

/// What model::draft() yields, where the processor reads it.
struct FetchedDrafts {
  View<const int32_t, 2> tokens;    ///< [length, sequences]
  View<const float, 2> confidence;  ///< [length, sequences]
};

/// One sequence's drafts up to the first one that is none: a token outside the vocabulary or a
/// confidence that is not finite, as a drafter with broken numbers makes them.
SlotDrafts usable_drafts(
    const FetchedDrafts& drafts,
    int64_t sequence,
    std::span<const double> temperatures,
    int64_t vocab_size
);

/// The drafts that a slot holds for a sequence which decodes; nullptr: it has ended.
using HeldDrafts = std::function<const SlotDrafts*(int32_t slot)>;

/// How many drafts each sequence of the step verifies: of those that it holds as many as its plan
/// and the step allow, and with costs those that promise most tokens a second: the best number of
/// all where exact seed verifies every draft; else by early stop, since under block verification
/// whether a draft is verified may depend on those before it alone.
std::vector<int64_t> drafts_to_verify(const StepInputs& inputs, const HeldDrafts& held);

}  // namespace di::engine
