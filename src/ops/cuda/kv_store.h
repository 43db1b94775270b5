// Quantises rotated rows into the records of the attention caches and puts them there.
#pragma once

#include "ops/attention.h"
#include "ops/exec.h"

namespace di::ops::cuda {

/// Q8 of every row: E4M3 codes, then the E8M0 scales. Equals `ref` bit for bit. Throws
/// Error{kUnsupported} when the width is no multiple of 32.
void window_records(Exec& exec, const WindowRecords& op);

/// The newest `ring.length` rows of each sequence go to the slots of their positions. Rows that no
/// sequence owns leave no trace.
void window_store(Exec& exec, const WindowStore& op);

/// Q4n or Q8 of each entry, written to its place in the paged cache; entries whose row is negative
/// are skipped. Equals `ref` bit for bit. Throws Error{kUnsupported} when the width is no multiple
/// of a quantisation group.
void compressed_store(Exec& exec, const CompressedStore& op);

}  // namespace di::ops::cuda
