// Q4m on the device: index queries and keys as E2M1 codes with an E8M0 scale for 32 values.
#pragma once

#include "ops/exec.h"
#include "ops/indexer.h"

namespace di::ops::cuda {

/// Quantises rows. Throws Error{kUnsupported} for a width that is no multiple of 32.
void quantize_mxfp4(Exec& exec, const QuantizeMxFp4& op);

/// Quantises index keys into the cache. Throws Error{kUnsupported} for a width that is no multiple
/// of 32.
void index_key_store(Exec& exec, const IndexKeyStore& op);

}  // namespace di::ops::cuda
