// The attention sublayer. Source: specification section 4.4.
#include <cmath>

#include "model/activations.h"

namespace di::model {
namespace {

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
       .block = pass.is_draft(l) ? act.rows->sequences.front().num_rows : 0,
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
  const AttentionWeights& weights = pass.layer(l).attn;
  const View<bf16, 2> kv = linear_q8(pass, x, weights.wkv);
  const auto records =
      pass.arena().array<uint8_t>(kv.dim(0), ops::kv_record_bytes(ops::KvFormat::kFp8, kv.dim(1)));
  pass.ops.window_keys(
      pass.exec,
      {.records = records,
       .kv = kv,
       .norm = weights.kv_norm,
       .positions = act.rows->view().positions,
       .frequencies = pass.frequencies(l),
       .eps = static_cast<float>(pass.model.config.rms_norm_eps)}
  );
  return records;
}

View<bf16, 2> attention(const Pass& pass, int64_t l, const SiteInput& input, Activations& act) {
  const AttentionConfig& config = pass.model.config.attention;
  const AttentionWeights& weights = pass.layer(l).attn;
  const View<const int64_t, 1> positions = act.rows->view().positions;
  const int64_t rows = act.num_rows();

  const View<bf16, 2> qr = linear_q8(pass, input.q8(), weights.wq_a);
  const ops::Q8View qr_q8 = norm_q8(pass, qr, weights.q_norm);
  const View<bf16, 2> q_flat = linear_q8(pass, qr_q8, weights.wq_b);
  const View<bf16, 3> q(q_flat.data, rows, config.num_attention_heads, config.head_dim);
  rotate(pass, l, q, positions);
  const View<uint8_t, 2> records = window_records(pass, l, input.q8(), act);
  if (pass.role(l).is_index_source) select_entries(pass, l, input.x, qr_q8, act);

  const View<bf16, 3> o = attend(pass, l, q, records, act);
  if (!pass.is_draft(l)) {  // a draft leaves nothing behind
    pass.ops.window_store(
        pass.exec, {.ring = pass.cache.ring(l), .records = records, .rows = act.rows->view()}
    );
  }
  rotate(pass, l, o, positions, /*inverse=*/true);
  const View<const bf16, 2> o_flat(o.data, rows, config.query_size());
  const View<bf16, 2> low_rank = linear_bf16(pass, o_flat, weights.wo_a, config.o_groups);
  const View<bf16, 2> y = linear_q8(pass, quantize(pass, low_rank), weights.wo_b);
  observe(pass, "attn_out", l, y);
  return y;
}

}  // namespace di::model
