// The reference ops over a range of rows (or entries). ref_ops() calls them on all rows; other
// backends run those that are not hot in parallel over ranges.
#pragma once

#include <vector>

#include "ops/ops.h"

namespace di::ops::ref {

// How many independent pieces an op has: rows, or entries for the compressed caches.
inline int64_t pieces(const Embed& op) {
  return op.h.dim(0);
}
inline int64_t pieces(const CopyRows& op) {
  return op.num_rows;
}
inline int64_t pieces(const RowsFinite& op) {
  return static_cast<int64_t>(op.rows.sequences.size());
}
inline int64_t pieces(const QuantizeFp8& op) {
  return op.x.dim(0);
}
inline int64_t pieces(const LinearQ8& op) {
  return op.y.dim(0);
}
inline int64_t pieces(const Linear& op) {
  return op.x.dim(0);
}
inline int64_t pieces(const RmsNorm& op) {
  return op.x.dim(0);
}
inline int64_t pieces(const Rope& op) {
  return op.x.dim(0);
}
inline int64_t pieces(const EngramHash& op) {
  return op.ids.dim(0);
}
inline int64_t pieces(const EngramLookup& op) {
  return op.ids.dim(0);
}
inline int64_t pieces(const EngramGate& op) {
  return op.h.dim(0);
}
inline int64_t pieces(const MhcSite& op) {
  return op.mix.h.dim(0);
}
inline int64_t pieces(const MhcMix& op) {
  return op.h.dim(0);
}
inline int64_t pieces(const MhcCollapse& op) {
  return op.h.dim(0);
}
inline int64_t pieces(const MhcExpand& op) {
  return op.h.dim(0);
}
inline int64_t pieces(const CompressorPool& op) {
  return static_cast<int64_t>(op.entries.size());
}
inline int64_t pieces(const CarryStore& op) {
  return static_cast<int64_t>(op.rows.sequences.size());
}
inline int64_t pieces(const CompressedStore& op) {
  return static_cast<int64_t>(op.entries.size());
}
inline int64_t pieces(const QuantizeMxFp4& op) {
  return op.x.dim(0);
}
inline int64_t pieces(const IndexKeyStore& op) {
  return static_cast<int64_t>(op.entries.size());
}
inline int64_t pieces(const IndexSelect& op) {
  return op.selected.dim(0);
}
inline int64_t pieces(const WindowRecords& op) {
  return op.kv.dim(0);
}
inline int64_t pieces(const WindowKeys& op) {
  return op.kv.dim(0);
}
inline int64_t pieces(const SparseAttention& op) {
  return op.q.dim(0);
}
inline int64_t pieces(const WindowStore& op) {
  return static_cast<int64_t>(op.rows.sequences.size());
}
inline int64_t pieces(const Route& op) {
  return op.logits.dim(0);
}
inline int64_t pieces(const SwiGlu& op) {
  return op.u.dim(0);
}
inline int64_t pieces(const Experts& op) {
  return op.y.dim(0);
}
inline int64_t pieces(const MarkovRound& op) {
  return op.logits.dim(0);
}

void embed(const Embed& op, RowRange range);
void copy_rows(const CopyRows& op, RowRange range);
void rows_finite(const RowsFinite& op, RowRange range);
void quantize_fp8(const QuantizeFp8& op, RowRange range);
void linear_q8(const LinearQ8& op, RowRange range);
void linear(const Linear& op, RowRange range);
void rms_norm(const RmsNorm& op, RowRange range);
void rope(const Rope& op, RowRange range);
void engram_hash(const EngramHash& op, RowRange range);
void engram_lookup(const EngramLookup& op, RowRange range);
void engram_gate(const EngramGate& op, RowRange range);
/// Row softmax of z [c, c], then alternating normalisation: `iters` column passes in all, the last
/// pass one. None: z stays.
void sinkhorn(float* z, int64_t c, int iters, float eps);
/// From the fn projection already in op.mixes and the row's rms factor to pre, post and comb.
void mhc_mix_row(const MhcMix& op, int64_t row, float factor);
void mhc_mix(const MhcMix& op, RowRange range);
void mhc_site(const MhcSite& op, RowRange range);
void mhc_collapse(const MhcCollapse& op, RowRange range);
void mhc_expand(const MhcExpand& op, RowRange range);
void compressor_pool(const CompressorPool& op, RowRange range);
void carry_store(const CarryStore& op, RowRange range);
void compressed_store(const CompressedStore& op, RowRange range);
void quantize_mxfp4(const QuantizeMxFp4& op, RowRange range);
void index_key_store(const IndexKeyStore& op, RowRange range);
void index_select(const IndexSelect& op, RowRange range);
/// Where a block's index section keeps entry j's codes and scales.
struct IndexKey {
  uint8_t* codes;
  uint8_t* scales;
};
IndexKey index_key(const PagedView& keys, const int32_t* block_table, int64_t j);
/// The score of entry j, rounded to bf16 after the dot product, the head weight and the head sum.
float index_score(const IndexSelect& op, int64_t row, const int32_t* block_table, int64_t j);
void window_records(const WindowRecords& op, RowRange range);
void window_keys(const WindowKeys& op, RowRange range);
/// A record that a row attends to.
struct AttentionEntry {
  const uint8_t* record;
  KvFormat format;
};
/// The list of a row in its order; a record of nullptr holds the place of an unused entry.
std::vector<AttentionEntry> list_attention_entries(const SparseAttention& op, int64_t row);
void sparse_attention(const SparseAttention& op, RowRange range);
void window_store(const WindowStore& op, RowRange range);
void route(const Route& op, RowRange range);
void swiglu(const SwiGlu& op, RowRange range);
void experts(const Experts& op, RowRange range);
/// The embedding of the token before a row, which joins the row's features.
const bf16* take_previous(const MarkovRound& op, int64_t row);
void markov_round(const MarkovRound& op, RowRange range);

}  // namespace di::ops::ref
