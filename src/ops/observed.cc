#include "ops/observed.h"

#include <algorithm>
#include <cstddef>

namespace di::ops {
namespace {

/// A literal as a template argument: the name of an op.
template <std::size_t kSize>
struct Name {
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Name(const char (&literal)[kSize]) { std::copy_n(literal, kSize, text); }
  char text[kSize] = {};
};

/// The observed twin of one table entry. `kRows` is a view of the op with a row for each row.
template <Name kName, auto kEntry, auto kRows, class Op>
void run_observed(Exec& exec, const Op& op) {
  OpSpan span{.op = kName.text, .start = std::chrono::steady_clock::now(), .end = {}};
  (exec.observer->backend().*kEntry)(exec, op);
  span.end = std::chrono::steady_clock::now();
  span.rows = (op.*kRows).dim(0);
  exec.observer->on_op(span);
}

/// A set is observed product by product.
void run_observed_set(Exec& exec, const LinearSet& op) {
  for (const LinearQ8& q8 : op.q8)
    exec.observer->table().linear_q8(exec, q8);
  for (const Linear& plain : op.plain)
    exec.observer->table().linear(exec, plain);
}

template <Name kName, auto kEntry, auto kRows>
void observe(OpTable& table) {
  table.*kEntry = run_observed<kName, kEntry, kRows>;
}

OpTable observed(const OpTable& backend) {
  OpTable t = backend;
  observe<"embed", &OpTable::embed, &Embed::h>(t);
  observe<"rows_finite", &OpTable::rows_finite, &RowsFinite::h>(t);
  observe<"quantize_fp8", &OpTable::quantize_fp8, &QuantizeFp8::x>(t);
  observe<"linear_q8", &OpTable::linear_q8, &LinearQ8::y>(t);
  observe<"linear", &OpTable::linear, &Linear::x>(t);
  t.linear_set = run_observed_set;
  observe<"rms_norm", &OpTable::rms_norm, &RmsNorm::x>(t);
  observe<"rope", &OpTable::rope, &Rope::x>(t);
  observe<"engram_hash", &OpTable::engram_hash, &EngramHash::ids>(t);
  observe<"engram_lookup", &OpTable::engram_lookup, &EngramLookup::y>(t);
  observe<"engram_gate", &OpTable::engram_gate, &EngramGate::h>(t);
  observe<"mhc_site", &OpTable::mhc_site, &MhcSite::x>(t);
  observe<"mhc_mix", &OpTable::mhc_mix, &MhcMix::h>(t);
  observe<"mhc_collapse", &OpTable::mhc_collapse, &MhcCollapse::x>(t);
  observe<"mhc_expand", &OpTable::mhc_expand, &MhcExpand::y>(t);
  observe<"compressor_pool", &OpTable::compressor_pool, &CompressorPool::kv>(t);
  observe<"carry_store", &OpTable::carry_store, &CarryStore::kv>(t);
  observe<"compressed_store", &OpTable::compressed_store, &CompressedStore::kv>(t);
  observe<"quantize_mxfp4", &OpTable::quantize_mxfp4, &QuantizeMxFp4::x>(t);
  observe<"index_key_store", &OpTable::index_key_store, &IndexKeyStore::k>(t);
  observe<"index_select", &OpTable::index_select, &IndexSelect::selected>(t);
  observe<"window_records", &OpTable::window_records, &WindowRecords::kv>(t);
  observe<"window_keys", &OpTable::window_keys, &WindowKeys::kv>(t);
  observe<"sparse_attention", &OpTable::sparse_attention, &SparseAttention::q>(t);
  observe<"window_store", &OpTable::window_store, &WindowStore::records>(t);
  observe<"route", &OpTable::route, &Route::ids>(t);
  observe<"swiglu", &OpTable::swiglu, &SwiGlu::u>(t);
  observe<"experts", &OpTable::experts, &Experts::y>(t);
  observe<"markov_round", &OpTable::markov_round, &MarkovRound::logits>(t);
  return t;
}

}  // namespace

OpObserver::OpObserver(const OpTable& backend) : backend_(backend), table_(observed(backend)) {}

}  // namespace di::ops
