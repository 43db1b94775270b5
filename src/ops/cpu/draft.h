// The Markov head on all threads: the head is read once for all rows of a round.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/draft.h"
#include "ops/exec.h"

namespace di::ops::cpu {

/// Equals ref::markov_round bit for bit. `op.head` is packed.
void markov_round(const Kernels& kernels, Exec& exec, const MarkovRound& op);

}  // namespace di::ops::cpu
