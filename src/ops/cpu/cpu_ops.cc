// cpu_ops(): the tables of the cpu backend. Ops that are not hot run the reference's row functions
// in parallel, so they equal it by construction.
#include "base/isa.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/by_rows.h"
#include "ops/cpu/draft.h"
#include "ops/cpu/experts.h"
#include "ops/cpu/indexer.h"
#include "ops/cpu/layout.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/rowwise.h"
#include "ops/ops.h"
#include "ops/ref/ref.h"

namespace di::ops {
namespace {

template <class Op, void (*kRun)(const Op&, RowRange)>
void by_rows(Exec& exec, const Op& op) {
  cpu::split_rows(exec, ref::pieces(op), [&op](RowRange range) { kRun(op, range); });
}

/// An op of the table: one of the cpu backend's functions with the kernels it wants.
template <class Op, const auto& kKernels, auto kRun>
void with(Exec& exec, const Op& op) {
  kRun(kKernels, exec, op);
}

template <const cpu::Kernels& kLinear, const cpu::RowKernels& kRows>
void linear(Exec& exec, const Linear& op) {
  cpu::linear(kLinear, exec, op);
  if (op.codes.empty()) return;
  cpu::quantize_fp8(kRows, exec, {.codes = op.codes, .scales = op.scales, .x = op.y});
}

template <const cpu::Kernels& kLinear, const cpu::RowKernels& kRows>
void linear_set(Exec& exec, const LinearSet& op) {
  for (const LinearQ8& q8 : op.q8)
    cpu::linear_q8(kLinear, exec, q8);
  for (const Linear& plain : op.plain)
    linear<kLinear, kRows>(exec, plain);
}

template <const cpu::RowKernels& kRows>
void window_store(Exec& exec, const WindowStore& op) {
  by_rows<WindowStore, ref::window_store>(exec, op);
  if (!op.rotation.x.empty()) cpu::rope(kRows, exec, op.rotation);
}

/// The projection is an ordinary linear; the rest of a site is a few numbers for each row.
template <const cpu::Kernels& kLinear, const cpu::RowKernels& kRows>
void mhc_mix(Exec& exec, const MhcMix& op) {
  const int64_t rows = op.h.dim(0);
  cpu::linear(
      kLinear,
      exec,
      {.y = {},
       .y_f32 = op.mixes,
       .x = View<const bf16, 2>(op.h.data, rows, op.h.dim(1) * op.h.dim(2)),
       .w = op.fn}
  );
  cpu::mhc_mix_rows(kRows, exec, op);
}

template <const cpu::Kernels& kLinear, const cpu::RowKernels& kRows>
void mhc_site(Exec& exec, const MhcSite& op) {
  mhc_mix<kLinear, kRows>(exec, op.mix);
  cpu::mhc_collapse(kRows, exec, {.x = op.x, .h = op.mix.h, .a = op.a});
  cpu::rms_norm(
      kRows,
      exec,
      {.y = op.x,
       .x = op.x,
       .weight = op.norm,
       .eps = op.mix.norm_eps,
       .codes = op.codes,
       .scales = op.scales}
  );
}

template <const cpu::Kernels& kLinear, const cpu::RowKernels& kRows>
void experts(Exec& exec, const Experts& op) {
  cpu::experts({kLinear, kRows}, exec, op);
}

template <
    const cpu::Kernels& kLinear,
    const cpu::RowKernels& kRows,
    const cpu::IndexKernels& kIndex,
    const cpu::AttentionKernels& kAttention>
const OpTable& table(const char* isa) {
  static const OpTable kTable = {
      .name = "cpu",
      .isa = isa,
      .memory = host_memory,
      .packed_bytes = cpu::packed_bytes,
      .pack = cpu::pack,
      .load = load_on_host,
      .pin = pin_on_host,
      .begin_loading = no_loading_on_host,
      .end_loading = no_loading_on_host,
      .embed = by_rows<Embed, ref::embed>,
      .copy_rows = by_rows<CopyRows, ref::copy_rows>,
      .rows_finite = by_rows<RowsFinite, ref::rows_finite>,
      .quantize_fp8 = with<QuantizeFp8, kRows, cpu::quantize_fp8>,
      .linear_q8 = with<LinearQ8, kLinear, cpu::linear_q8>,
      .linear = linear<kLinear, kRows>,
      .linear_set = linear_set<kLinear, kRows>,
      .rms_norm = with<RmsNorm, kRows, cpu::rms_norm>,
      .rope = with<Rope, kRows, cpu::rope>,
      .engram_hash = by_rows<EngramHash, ref::engram_hash>,
      .engram_lookup = with<EngramLookup, kRows, cpu::engram_lookup>,
      .engram_gate = with<EngramGate, kRows, cpu::engram_gate>,
      .mhc_site = mhc_site<kLinear, kRows>,
      .mhc_mix = mhc_mix<kLinear, kRows>,
      .mhc_collapse = with<MhcCollapse, kRows, cpu::mhc_collapse>,
      .mhc_expand = with<MhcExpand, kRows, cpu::mhc_expand>,
      .compressor_pool = by_rows<CompressorPool, ref::compressor_pool>,
      .carry_store = by_rows<CarryStore, ref::carry_store>,
      .compressed_store = by_rows<CompressedStore, ref::compressed_store>,
      .quantize_mxfp4 = with<QuantizeMxFp4, kRows, cpu::quantize_mxfp4>,
      .index_key_store = by_rows<IndexKeyStore, ref::index_key_store>,
      .index_select = with<IndexSelect, kIndex, cpu::index_select>,
      .window_records = with<WindowRecords, kRows, cpu::window_records>,
      .window_keys = with<WindowKeys, kRows, cpu::window_keys>,
      .sparse_attention = with<SparseAttention, kAttention, cpu::sparse_attention>,
      .window_store = window_store<kRows>,
      .route = by_rows<Route, ref::route>,
      .swiglu = with<SwiGlu, kRows, cpu::swiglu>,
      .experts = experts<kLinear, kRows>,
      .markov_round = with<MarkovRound, kLinear, cpu::markov_round>,
  };
  return kTable;
}

}  // namespace

const OpTable& cpu_ops(Isa isa) {
  using namespace cpu;
  const char* name = name_of(isa);
  switch (isa) {
    case Isa::kAvx2: break;
    case Isa::kAvx512:
      return table<kAvx512Kernels, kAvx512Rows, kAvx512Index, kAvx512Attention>(name);
    case Isa::kVnni:
    case Isa::kAmx: return table<kVnniKernels, kAvx512Rows, kVnniIndex, kAvx512Attention>(name);
  }
  return table<kAvx2Kernels, kAvx2Rows, kAvx2Index, kAvx2Attention>(name);
}

}  // namespace di::ops
