// The Markov head of the drafter on the GPU.
#pragma once

#include "ops/draft.h"
#include "ops/exec.h"

namespace di::ops::cuda {

/// Entry `markov_round`. The bias is that of `linear`, in fp32 sums; the rest is exact. Throws
/// kUnsupported where `linear` does.
void markov_round(Exec& exec, const MarkovRound& op);

namespace canonical {

/// The same with the bias of canonical::linear: the reference's bits.
void markov_round(Exec& exec, const MarkovRound& op);

}  // namespace canonical

}  // namespace di::ops::cuda
