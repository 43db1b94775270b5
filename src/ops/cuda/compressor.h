// The compressor on the device: pooling of tokens into compressed latents, and the carry of tokens
// that a later step may pool. Bound by memory; one thread a channel.
#pragma once

#include "ops/compressor.h"
#include "ops/exec.h"

namespace di::ops::cuda {

/// Pools each new entry; rows of `latent` whose entry is none stay as they are.
void compressor_pool(Exec& exec, const CompressorPool& op);

/// Copies the newest `carry.length` rows of each sequence into its carry. Throws
/// Error{kUnsupported} unless rows are whole pieces of 16 bytes.
void carry_store(Exec& exec, const CarryStore& op);

}  // namespace di::ops::cuda
