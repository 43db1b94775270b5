// An index source's selection of compressed entries. Source: specification section 4.6.
#include <cmath>

#include "model/activations.h"

namespace di::model {
float index_factor(const IndexerConfig& config) {
  return static_cast<float>(
      1.0 / std::sqrt(static_cast<double>(config.index_head_dim * config.index_n_heads))
  );
}

void select_entries(const Pass& pass, int64_t l, const IndexQueries& queries, Activations& act) {
  const IndexerConfig& config = pass.model.config.indexer;
  const LayerRole& role = pass.role(l);
  const int64_t rows = act.num_rows();
  const Arena::Scope scope(pass.arena());
  const View<bf16, 2>& q = queries.q;
  const View<bf16, 3> q_heads(q.data, rows, config.index_n_heads, config.index_head_dim);
  rotate(pass, l, q_heads, act.rows->view().positions);
  const auto codes =
      pass.arena().array<uint8_t>(rows, config.index_n_heads, config.index_head_dim / 2);
  const auto scales =
      pass.arena().array<uint8_t>(rows, config.index_n_heads, config.index_head_dim / 32);
  const int64_t heads = rows * config.index_n_heads;
  pass.ops.quantize_mxfp4(
      pass.exec,
      {.codes = View<uint8_t, 2>(codes.data, heads, codes.dim(2)),
       .scales = View<uint8_t, 2>(scales.data, heads, scales.dim(2)),
       .x = View<const bf16, 2>(q.data, heads, config.index_head_dim)}
  );
  pass.ops.index_select(
      pass.exec,
      {.selected = act.selected,
       .candidates_out = role.is_candidate_source ? act.candidates : View<int32_t, 2>{},
       .candidates_in = role.uses_candidates ? act.candidates : View<int32_t, 2>{},
       .q_codes = codes,
       .q_scales = scales,
       .head_weights = queries.head_weights,
       .keys = pass.cache.index_keys(role.kv_source),
       .ratio = role.ratio,
       .candidate_block_size = config.candidate_block_size,
       .rows = act.rows->view()}
  );
  observe(pass, "index_topk", l, act.selected);
  if (role.is_candidate_source) observe(pass, "candidates", l, act.candidates);
}

}  // namespace di::model
