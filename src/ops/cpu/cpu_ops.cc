// cpu_ops(): the tables of the cpu backend. Ops that are not hot run the reference's row functions
// in parallel, so they equal it by construction.
#include "ops/cpu/experts.h"
#include "ops/cpu/layout.h"
#include "ops/cpu/linear.h"
#include "ops/ops.h"
#include "ops/ref/ref.h"

namespace di::ops {
namespace {

template <class Op, void (*kRun)(const Op&, RowRange)>
void by_rows(Exec& exec, const Op& op) {
  const int64_t pieces = ref::pieces(op);
  const int64_t grain = pieces / (exec.pool.num_threads() * 4) + 1;
  exec.pool.parallel_for(pieces, grain, [&op](int64_t begin, int64_t end) {
    kRun(op, {begin, end});
  });
}

template <const cpu::Kernels* kKernels>
void linear_q8(Exec& exec, const LinearQ8& op) {
  cpu::linear_q8(*kKernels, exec, op);
}

template <const cpu::Kernels* kKernels>
void linear(Exec& exec, const Linear& op) {
  cpu::linear(*kKernels, exec, op);
}

template <const cpu::Kernels* kKernels>
void experts(Exec& exec, const Experts& op) {
  cpu::experts(*kKernels, exec, op);
}

/// The projection is an ordinary linear; the rest of a site is a few numbers for each row.
template <const cpu::Kernels* kKernels>
void mhc_mix(Exec& exec, const MhcMix& op) {
  const int64_t rows = op.h.dim(0);
  cpu::linear(
      *kKernels,
      exec,
      {.y = {},
       .y_f32 = op.mixes,
       .x = View<const bf16, 2>(op.h.data, rows, op.h.dim(1) * op.h.dim(2)),
       .w = op.fn}
  );
  by_rows<MhcMix, ref::mhc_mix_rows>(exec, op);
}

template <const cpu::Kernels* kKernels>
const OpTable& table(const char* isa) {
  static const OpTable kTable = {
      .name = "cpu",
      .isa = isa,
      .packed_bytes = cpu::packed_bytes,
      .pack = cpu::pack,
      .quantize_fp8 = by_rows<QuantizeFp8, ref::quantize_fp8>,
      .linear_q8 = linear_q8<kKernels>,
      .linear = linear<kKernels>,
      .rms_norm = by_rows<RmsNorm, ref::rms_norm>,
      .rope = by_rows<Rope, ref::rope>,
      .engram_lookup = by_rows<EngramLookup, ref::engram_lookup>,
      .engram_gate = by_rows<EngramGate, ref::engram_gate>,
      .mhc_mix = mhc_mix<kKernels>,
      .mhc_collapse = by_rows<MhcCollapse, ref::mhc_collapse>,
      .mhc_expand = by_rows<MhcExpand, ref::mhc_expand>,
      .compressor_pool = by_rows<CompressorPool, ref::compressor_pool>,
      .carry_store = by_rows<CarryStore, ref::carry_store>,
      .compressed_store = by_rows<CompressedStore, ref::compressed_store>,
      .quantize_mxfp4 = by_rows<QuantizeMxFp4, ref::quantize_mxfp4>,
      .index_key_store = by_rows<IndexKeyStore, ref::index_key_store>,
      .index_select = by_rows<IndexSelect, ref::index_select>,
      .window_records = by_rows<WindowRecords, ref::window_records>,
      .sparse_attention = by_rows<SparseAttention, ref::sparse_attention>,
      .window_store = by_rows<WindowStore, ref::window_store>,
      .route = by_rows<Route, ref::route>,
      .swiglu = by_rows<SwiGlu, ref::swiglu>,
      .experts = experts<kKernels>,
  };
  return kTable;
}

}  // namespace

const OpTable& cpu_ops(Isa isa) {
  switch (isa) {
    case Isa::kAvx2: break;
    case Isa::kAvx512: return table<&cpu::kAvx512Kernels>(name_of(isa));
    case Isa::kVnni:
    case Isa::kAmx: return table<&cpu::kVnniKernels>(name_of(isa));
  }
  return table<&cpu::kAvx2Kernels>(name_of(isa));
}

}  // namespace di::ops
