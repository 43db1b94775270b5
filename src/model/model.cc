#include "model/model.h"

#include "model/engram_hash.h"
#include "model/rope_tables.h"
#include "tensor/address_memory.h"

namespace di::model {
namespace {

void keep_numbers(Model& model, const Memory& memory) {
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
  const int64_t c = model.config.hc.hc_mult;
  model.equal_shares = constants.keep(
      memory, std::vector<float>(static_cast<std::size_t>(c), 1.0f / static_cast<float>(c))
  );
}

void keep_hash(Model& model, const EngramHash& hash, const Memory& memory) {
  Constants& constants = model.constants;
  model.engram_hashing.layers.push_back(
      {constants.keep(memory, hash.multipliers),
       constants.keep(memory, hash.primes),
       constants.keep(memory, hash.offsets)}
  );
}

/// The sizes of an Engram layer's hash.
EngramHash empty_hash(const EngramConfig& engram) {
  const auto lookups = static_cast<std::size_t>(engram.rows_per_token());
  return {
      .multipliers = std::vector<int64_t>(static_cast<std::size_t>(engram.engram_max_ngram_size)),
      .primes = std::vector<int64_t>(lookups),
      .offsets = std::vector<int64_t>(lookups)};
}

}  // namespace

void keep_constants(
    Model& model, const std::vector<int32_t>& engram_token_map, const Memory& memory
) {
  keep_numbers(model, memory);
  const EngramConfig& engram = model.config.engram;
  if (!engram.enabled()) return;
  EngramHashing& hashing = model.engram_hashing;
  for (const EngramHash& hash : engram_hashes(model.config, engram_token_map))
    keep_hash(model, hash, memory);
  hashing.pad = engram_token_map[static_cast<std::size_t>(engram.engram_pad_token_id)];
  hashing.token_map = model.constants.keep(memory, engram_token_map);
}

Model outline_model(
    const checkpoint::Checkpoint& checkpoint, const ops::OpTable& ops, const LoadOptions& options
) {
  Model model;
  model.config = checkpoint.config();
  model.roles = layer_roles(model.config);
  model.roles.resize(static_cast<std::size_t>(model.config.num_layers()));
  model.weights = outline_weights(checkpoint, ops, options);
  keep_numbers(model, address_memory());
  const EngramConfig& engram = model.config.engram;
  if (!engram.enabled()) return model;
  for (std::size_t i = 0; i < engram.engram_layer_ids.size(); ++i)
    keep_hash(model, empty_hash(engram), address_memory());
  const std::vector<int32_t> token_map(static_cast<std::size_t>(model.config.vocab_size));
  model.engram_hashing.token_map = model.constants.keep(address_memory(), token_map);
  return model;
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
