// The attention sublayer. Source: specification section 4.4.
#include <array>
#include <cmath>

#include "model/activations.h"

namespace di::model {
namespace {

/// The window keys of `kv`, with memory for their records.
ops::WindowKeys window_keys(
    const Pass& pass, int64_t l, const View<bf16, 2>& kv, const Activations& act
) {
  return {
      .records = pass.arena().array<uint8_t>(
          kv.dim(0), ops::kv_record_bytes(ops::KvFormat::kFp8, kv.dim(1))
      ),
      .kv = kv,
      .norm = pass.layer(l).attn.kv_norm,
      .positions = act.rows->view().positions,
      .frequencies = pass.frequencies(l),
      .eps = static_cast<float>(pass.model.config.rms_norm_eps)};
}

/// What the two low-rank projections give.
struct LowRank {
  ops::Q8View query;         // [rows, q_lora_rank], normed
  View<uint8_t, 2> records;  // [rows, record_bytes]: window records, not yet in the rings
};

LowRank low_rank(const Pass& pass, int64_t l, const ops::Q8View& x, const Activations& act) {
  const AttentionWeights& weights = pass.layer(l).attn;
  const int64_t rows = act.num_rows();
  const auto query = pass.arena().array<bf16>(rows, weights.wq_a.rows);
  const auto kv = pass.arena().array<bf16>(rows, weights.wkv.rows);
  const std::array<ops::LinearQ8, 2> products{{{query, x, weights.wq_a}, {kv, x, weights.wkv}}};
  pass.ops.linear_set(pass.exec, {.q8 = products, .plain = {}});
  const auto codes = pass.arena().array<uint8_t>(rows, query.dim(1));
  const auto scales = pass.arena().array<uint8_t>(rows, query.dim(1) / ops::kScaleGroup);
  ops::WindowKeys op = window_keys(pass, l, kv, act);
  op.query = {
      .y = query,
      .x = query,
      .weight = weights.q_norm,
      .eps = op.eps,
      .codes = codes,
      .scales = scales};
  pass.ops.window_keys(pass.exec, op);
  return {{codes, scales}, op.records};
}

/// The queries of all heads [rows, heads · head_dim], and an index source's, in one set.
struct Queries {
  View<bf16, 2> heads;
  IndexQueries index;
};

Queries queries(const Pass& pass, int64_t l, const View<bf16, 2>& x, const ops::Q8View& low) {
  const ops::Weight& wq_b = pass.layer(l).attn.wq_b;
  if (!pass.role(l).is_index_source) return {linear_q8(pass, low, wq_b), {}};
  const IndexerWeights& indexer = *pass.layer(l).indexer;
  const auto of = [&](const ops::Weight& w) { return pass.arena().array<bf16>(x.dim(0), w.rows); };
  const Queries result{of(wq_b), {of(indexer.wq_b), of(indexer.weights_proj)}};
  const std::array<ops::LinearQ8, 2> products{
      {{result.heads, low, wq_b}, {result.index.q, low, indexer.wq_b}}};
  const std::array<ops::Linear, 1> plain{
      {{.y = result.index.head_weights,
        .y_f32 = {},
        .x = x,
        .w = indexer.weights_proj,
        .y_factor = index_factor(pass.model.config.indexer)}}};
  pass.ops.linear_set(pass.exec, {.q8 = products, .plain = plain});
  return result;
}

/// Attention of all heads over window and selection [rows, heads, head_dim], still rotated.
View<bf16, 3> attend(
    const Pass& pass,
    int64_t l,
    const View<bf16, 3>& q,
    const View<uint8_t, 2>& records,
    const Activations& act
) {
  const LayerRole& role = pass.role(l);
  const bool has_entries = role.ratio > 0;
  const auto o = pass.arena().array<bf16>(q.dim(0), q.dim(1), q.dim(2));
  pass.ops.sparse_attention(
      pass.exec,
      {.o = o,
       .q = q,
       .window_records = records,
       .ring = pass.cache.ring(l),
       .window = pass.model.config.attention.sliding_window,
       .block = pass.placed.block,
       .compressed = has_entries ? pass.cache.compressed(role.kv_source) : ops::PagedView{},
       .format = pass.cache.layout().kv_format,
       .selected = has_entries ? act.selected : View<int32_t, 2>{},
       .sink = pass.layer(l).attn.attn_sink,
       .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(q.dim(2)))),
       .rows = act.rows->view()}
  );
  return o;
}

}  // namespace

View<uint8_t, 2> window_records(
    const Pass& pass, int64_t l, const ops::Q8View& x, const Activations& act
) {
  const ops::WindowKeys op = window_keys(pass, l, linear_q8(pass, x, pass.layer(l).attn.wkv), act);
  pass.ops.window_keys(pass.exec, op);
  return op.records;
}

void attention(const Pass& pass, int64_t l, const SiteInput& input, Activations& act) {
  const AttentionConfig& config = pass.model.config.attention;
  const AttentionWeights& weights = pass.layer(l).attn;
  const View<const int64_t, 1> positions = act.rows->view().positions;
  const int64_t rows = act.num_rows();

  const auto [low, records] = low_rank(pass, l, input.q8(), act);
  const auto [heads, index] = queries(pass, l, input.x, low);
  const View<bf16, 3> q(heads.data, rows, config.num_attention_heads, config.head_dim);
  rotate(pass, l, q, positions);
  if (pass.role(l).is_index_source) select_entries(pass, l, index, act);

  const View<bf16, 3> o = attend(pass, l, q, records, act);
  const ops::Rope back{
      .x = o, .positions = positions, .frequencies = pass.frequencies(l), .inverse = true};
  if (pass.is_draft(l)) {  // a draft leaves nothing behind
    pass.ops.rope(pass.exec, back);
  } else {
    pass.ops.window_store(
        pass.exec,
        {.ring = pass.cache.ring(l), .records = records, .rows = act.rows->view(), .rotation = back}
    );
  }
  const View<const bf16, 2> o_flat(o.data, rows, config.query_size());
  linear_q8(pass, act.y, linear_to_q8(pass, o_flat, weights.wo_a, config.o_groups), weights.wo_b);
  observe(pass, "attn_out", l, act.y);
}

}  // namespace di::model
