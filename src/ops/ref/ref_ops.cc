// ref_ops(): every op over all its rows, in order, on the calling thread.
#include <cstring>

#include "ops/ref/ref.h"

namespace di::ops {
namespace {

template <class Op, void (*kRun)(const Op&, RowRange)>
void serial(Exec&, const Op& op) {
  kRun(op, {0, ref::pieces(op)});
}

void linear_set(Exec& exec, const LinearSet& op) {
  for (const LinearQ8& q8 : op.q8)
    serial<LinearQ8, ref::linear_q8>(exec, q8);
  for (const Linear& plain : op.plain)
    serial<Linear, ref::linear>(exec, plain);
}

void window_store(Exec& exec, const WindowStore& op) {
  serial<WindowStore, ref::window_store>(exec, op);
  serial<Rope, ref::rope>(exec, op.rotation);
}

int64_t no_packing(WeightFormat, int64_t, int64_t) {
  return 0;
}
void pack_nothing(const Weight&, RowRange, std::byte*) {}

}  // namespace

void load_on_host(const std::byte* from, int64_t bytes, std::byte* to) {
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

std::shared_ptr<const std::byte> pin_on_host(std::span<const std::byte> bytes) {
  return {std::shared_ptr<const std::byte>(), bytes.data()};
}

void no_loading_on_host() {}

const OpTable& ref_ops() {
  static constexpr OpTable kTable = {
      .name = "ref",
      .isa = "scalar",
      .memory = host_memory,
      .packed_bytes = no_packing,
      .pack = pack_nothing,
      .load = load_on_host,
      .pin = pin_on_host,
      .begin_loading = no_loading_on_host,
      .end_loading = no_loading_on_host,
      .embed = serial<Embed, ref::embed>,
      .copy_rows = serial<CopyRows, ref::copy_rows>,
      .rows_finite = serial<RowsFinite, ref::rows_finite>,
      .quantize_fp8 = serial<QuantizeFp8, ref::quantize_fp8>,
      .linear_q8 = serial<LinearQ8, ref::linear_q8>,
      .linear = serial<Linear, ref::linear>,
      .linear_set = linear_set,
      .rms_norm = serial<RmsNorm, ref::rms_norm>,
      .rope = serial<Rope, ref::rope>,
      .engram_hash = serial<EngramHash, ref::engram_hash>,
      .engram_lookup = serial<EngramLookup, ref::engram_lookup>,
      .engram_gate = serial<EngramGate, ref::engram_gate>,
      .mhc_site = serial<MhcSite, ref::mhc_site>,
      .mhc_mix = serial<MhcMix, ref::mhc_mix>,
      .mhc_collapse = serial<MhcCollapse, ref::mhc_collapse>,
      .mhc_expand = serial<MhcExpand, ref::mhc_expand>,
      .compressor_pool = serial<CompressorPool, ref::compressor_pool>,
      .carry_store = serial<CarryStore, ref::carry_store>,
      .compressed_store = serial<CompressedStore, ref::compressed_store>,
      .quantize_mxfp4 = serial<QuantizeMxFp4, ref::quantize_mxfp4>,
      .index_key_store = serial<IndexKeyStore, ref::index_key_store>,
      .index_select = serial<IndexSelect, ref::index_select>,
      .window_records = serial<WindowRecords, ref::window_records>,
      .window_keys = serial<WindowKeys, ref::window_keys>,
      .sparse_attention = serial<SparseAttention, ref::sparse_attention>,
      .window_store = window_store,
      .route = serial<Route, ref::route>,
      .swiglu = serial<SwiGlu, ref::swiglu>,
      .experts = serial<Experts, ref::experts>,
      .markov_round = serial<MarkovRound, ref::markov_round>,
  };
  return kTable;
}

}  // namespace di::ops
