// A KV source's compressed entries and index keys. Source: specification sections 4.5 and 4.6.
#include <array>

#include "model/activations.h"

namespace di::model {
namespace {

/// The latents of the new entries before rotation [entries, head_dim].
View<bf16, 2> latents(
    const Pass& pass,
    int64_t l,
    const View<bf16, 2>& x,
    const Activations& act,
    const NewEntries& list
) {
  const CompressorWeights& weights = *pass.layer(l).compressor;
  const int64_t ratio = pass.role(l).ratio;
  if (ratio == 1) {
    const View<bf16, 2> latent = linear_bf16(pass, x, weights.wkv);
    norm(pass, latent, weights.norm);
    return latent;
  }
  const auto kv = pass.arena().array<float>(x.dim(0), weights.wkv.rows);
  const auto score = pass.arena().array<float>(x.dim(0), weights.wgate.rows);
  const std::array<ops::Linear, 2> products{
      {{.y = {}, .y_f32 = kv, .x = x, .w = weights.wkv},
       {.y = {}, .y_f32 = score, .x = x, .w = weights.wgate}}};
  pass.ops.linear_set(pass.exec, {.q8 = {}, .plain = products});
  const auto latent = pass.arena().array<bf16>(std::ssize(list.entries), weights.wkv.rows);
  const ops::RingView carry = pass.cache.carry(l);
  const ops::Rows rows = act.rows->view();
  pass.ops.compressor_pool(
      pass.exec,
      {.latent = latent,
       .kv = kv,
       .score = score,
       .carry = carry,
       .ratio = ratio,
       .entries = list.entries,
       .rows = rows}
  );
  pass.ops.carry_store(pass.exec, {.carry = carry, .kv = kv, .score = score, .rows = rows});
  norm(pass, latent, weights.norm);
  return latent;
}

View<bf16, 3> as_heads(const View<bf16, 2>& x) {
  return View<bf16, 3>(x.data, x.dim(0), 1, x.dim(1));
}

}  // namespace

void compress(const Pass& pass, int64_t l, const View<bf16, 2>& x, const Activations& act) {
  const Arena::Scope scope(pass.arena());
  const CompressorWeights& weights = *pass.layer(l).compressor;
  const int64_t ratio = pass.role(l).ratio;
  // An entry is rotated to the position of its first token.
  const NewEntries& list = act.rows->new_entries(ratio);
  const View<bf16, 2> latent = latents(pass, l, x, act, list);
  if (list.entries.empty()) return;
  observe(pass, "latent", l, latent);

  const View<bf16, 2> key = linear_bf16(pass, latent, weights.wk);
  norm(pass, key, weights.k_norm);
  rotate(pass, l, as_heads(key), list.positions);
  pass.ops.index_key_store(
      pass.exec,
      {.cache = pass.cache.index_keys(l),
       .k = key,
       .entries = list.entries,
       .rows = act.rows->view()}
  );
  rotate(pass, l, as_heads(latent), list.positions);
  pass.ops.compressed_store(
      pass.exec,
      {.cache = pass.cache.compressed(l),
       .format = pass.cache.layout().kv_format,
       .kv = latent,
       .entries = list.entries,
       .rows = act.rows->view()}
  );
}

}  // namespace di::model
