// Ops that pass once over each row, on the cpu backend. Bit-identical to their ref:: namesakes,
// which also take the widths that no register fits.
#pragma once

#include "ops/cpu/row_kernels.h"
#include "ops/ops.h"

namespace di::ops::cpu {

void quantize_fp8(const RowKernels& kernels, Exec& exec, const QuantizeFp8& op);
void quantize_mxfp4(const RowKernels& kernels, Exec& exec, const QuantizeMxFp4& op);
void rms_norm(const RowKernels& kernels, Exec& exec, const RmsNorm& op);
void rope(const RowKernels& kernels, Exec& exec, const Rope& op);
void engram_lookup(const RowKernels& kernels, Exec& exec, const EngramLookup& op);
void engram_gate(const RowKernels& kernels, Exec& exec, const EngramGate& op);
/// From the fn projection already in op.mixes to pre, post and comb.
void mhc_mix_rows(const RowKernels& kernels, Exec& exec, const MhcMix& op);
void mhc_collapse(const RowKernels& kernels, Exec& exec, const MhcCollapse& op);
void mhc_expand(const RowKernels& kernels, Exec& exec, const MhcExpand& op);
void window_records(const RowKernels& kernels, Exec& exec, const WindowRecords& op);
void window_keys(const RowKernels& kernels, Exec& exec, const WindowKeys& op);
void swiglu(const RowKernels& kernels, Exec& exec, const SwiGlu& op);

}  // namespace di::ops::cpu
