// The n-gram memory: which rows, their gathering, and the gate; see ops/engram.h.
#pragma once

#include "ops/engram.h"
#include "ops/exec.h"

namespace di::ops::cuda {

void engram_hash(Exec& exec, const EngramHash& op);

/// The table may lie in device memory or in pinned memory of the machine, which is then read
/// through the bus. Throws Error{kUnsupported} unless head_dim is a multiple of 32.
void engram_lookup(Exec& exec, const EngramLookup& op);

/// The three sums run in double in an order that the width alone decides. Throws
/// Error{kUnsupported} unless the hidden size is a multiple of 8.
void engram_gate(Exec& exec, const EngramGate& op);

}  // namespace di::ops::cuda
