#include "model/model.h"

#include "model/engram_hash.h"
#include "model/rope_tables.h"

namespace di::model {

void keep_constants(
    Model& model, const std::vector<int32_t>& engram_token_map, const Memory& memory
) {
  const AttentionConfig& attention = model.config.attention;
  Constants& constants = model.constants;
  model.base_frequencies =
      constants.keep(memory, base_frequencies(attention.rope_theta, attention.qk_rope_head_dim));
  model.yarn_frequencies = constants.keep(
      memory,
      yarn_frequencies(
          attention.compress_rope_theta, attention.qk_rope_head_dim, attention.rope_scaling
      )
  );
  const EngramConfig& engram = model.config.engram;
  if (!engram.enabled()) return;
  EngramHashing& hashing = model.engram_hashing;
  for (const EngramHash& hash : engram_hashes(model.config, engram_token_map)) {
    hashing.layers.push_back(
        {constants.keep(memory, hash.multipliers),
         constants.keep(memory, hash.primes),
         constants.keep(memory, hash.offsets)}
    );
  }
  hashing.pad = engram_token_map[static_cast<std::size_t>(engram.engram_pad_token_id)];
  hashing.token_map = constants.keep(memory, engram_token_map);
}

Model load_model(
    const checkpoint::Checkpoint& checkpoint,
    const std::vector<int32_t>& engram_token_map,
    const ops::OpTable& ops,
    ThreadPool& pool,
    const checkpoint::LoadProgress& progress,
    const LoadOptions& options
) {
  Model model;
  model.config = checkpoint.config();
  model.roles = layer_roles(model.config);
  model.roles.resize(static_cast<std::size_t>(model.config.num_layers()));
  keep_constants(model, engram_token_map, ops.memory());
  model.weights = load_weights(checkpoint, ops, pool, progress, options);
  return model;
}

}  // namespace di::model
