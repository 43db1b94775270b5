// Engram in front of a layer. Source: specification section 4.3.
#include "model/activations.h"

namespace di::model {
namespace {

/// Table rows of every row of the step [rows, orders · heads].
View<int64_t, 2> lookup_ids(const Pass& pass, int64_t index, const Activations& act) {
  const EngramHashing& hashing = pass.model.engram_hashing;
  const EngramHashConstants& layer = hashing.layers[static_cast<std::size_t>(index)];
  const auto ids =
      pass.arena().array<int64_t>(act.num_rows(), pass.model.config.engram.rows_per_token());
  pass.ops.engram_hash(
      pass.exec,
      {.ids = ids,
       .token_map = hashing.token_map,
       .multipliers = layer.multipliers,
       .primes = layer.primes,
       .offsets = layer.offsets,
       .pad = hashing.pad,
       .rows = act.rows->view()}
  );
  return ids;
}

}  // namespace

void engram(const Pass& pass, int64_t l, Activations& act) {
  const Arena::Scope scope(pass.arena());
  const EngramWeights& weights = *pass.layer(l).engram;
  const View<int64_t, 2> ids = lookup_ids(pass, pass.role(l).engram, act);
  observe(pass, "engram_ids", l, ids);

  const auto rows =
      pass.arena().array<bf16>(act.num_rows(), pass.model.config.engram.lookup_size());
  pass.ops.engram_lookup(pass.exec, {.y = rows, .ids = ids, .table = weights.table});
  const View<bf16, 2> kv = linear_q8(pass, quantize(pass, rows), weights.wkv);
  pass.ops.engram_gate(
      pass.exec,
      {.h = act.h,
       .kv = kv,
       .q_weight = weights.q_weight,
       .k_weight = weights.k_weight,
       .is_image = act.rows->image_view(),
       .gate = {}}
  );
}

}  // namespace di::model
