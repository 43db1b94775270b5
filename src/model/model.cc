#include "model/model.h"

#include "model/rope_tables.h"

namespace di::model {

Model load_model(
    const checkpoint::Checkpoint& checkpoint,
    std::vector<int32_t> engram_token_map,
    const ops::OpTable& ops,
    ThreadPool& pool,
    const checkpoint::LoadProgress& progress
) {
  const ModelConfig& config = checkpoint.config();
  const AttentionConfig& attention = config.attention;
  Model model;
  model.config = config;
  model.roles = layer_roles(config);
  model.engram_hasher = EngramHasher(config, std::move(engram_token_map));
  model.base_frequencies = base_frequencies(attention.rope_theta, attention.qk_rope_head_dim);
  model.yarn_frequencies = yarn_frequencies(
      attention.compress_rope_theta, attention.qk_rope_head_dim, attention.rope_scaling
  );
  model.weights = load_weights(checkpoint, ops, pool, progress);
  return model;
}

}  // namespace di::model
