// Rows enter the pass, change places in it, and are looked at; see ops/row_moves.h.
#pragma once

#include "ops/exec.h"
#include "ops/row_moves.h"

namespace di::ops::cuda {

/// Throws Error{kUnsupported} unless the hidden size is a multiple of 8.
void embed(Exec& exec, const Embed& op);

/// Throws Error{kUnsupported} unless row_bytes and both strides are multiples of 4.
void copy_rows(Exec& exec, const CopyRows& op);

/// Throws Error{kUnsupported} unless a row of streams is a multiple of 8 values.
void rows_finite(Exec& exec, const RowsFinite& op);

}  // namespace di::ops::cuda
