#include "config/model_rules.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "config/layer_role.h"
#include "config/rules.h"

namespace di {
namespace {

bool contains(const std::vector<int64_t>& ids, int64_t layer) {
  return std::find(ids.begin(), ids.end(), layer) != ids.end();
}

void check_tokens(const Rules& rules, const ModelConfig& c) {
  rules.require_token("bos_token_id", c.tokens.bos_token_id, c.vocab_size);
  rules.require_token("eos_token_id", c.tokens.eos_token_id, c.vocab_size);
  rules.require_token("pad_token_id", c.tokens.pad_token_id, c.vocab_size);
  if (c.vision) rules.require_token("image_token_id", c.tokens.image_token_id, c.vocab_size);
  if (c.engram.enabled())
    rules.require_token("engram_pad_token_id", c.engram.engram_pad_token_id, c.vocab_size);
  if (c.draft.enabled())
    rules.require_token("dspark_noise_token_id", c.draft.dspark_noise_token_id, c.vocab_size);
}

void check_attention(const Rules& rules, const AttentionConfig& a) {
  rules.require(
      a.qk_rope_head_dim <= a.head_dim,
      fmt::format("qk_rope_head_dim is {}, head_dim only {}", a.qk_rope_head_dim, a.head_dim)
  );
  rules.require(
      a.num_attention_heads % a.o_groups == 0,
      fmt::format(
          "o_groups is {} and must divide num_attention_heads {}", a.o_groups, a.num_attention_heads
      )
  );
  rules.require(
      a.rope_scaling.beta_slow < a.rope_scaling.beta_fast,
      fmt::format(
          "rope_scaling.beta_slow is {}, expected less than beta_fast {}",
          a.rope_scaling.beta_slow,
          a.rope_scaling.beta_fast
      )
  );
}

void check_ratios(const Rules& rules, const ModelConfig& c) {
  const auto& ratios = c.attention.compress_ratios;
  const auto count = static_cast<int64_t>(ratios.size());
  rules.require(
      count == c.num_layers(),
      fmt::format(
          "compress_ratios has {} entries, num_hidden_layers {} + num_nextn_predict_layers "
          "{} ask for {}; is this checkpoint complete?",
          count,
          c.num_hidden_layers,
          c.draft.num_nextn_predict_layers,
          c.num_layers()
      )
  );
  for (int64_t l = 0; l < count; ++l) {
    const int64_t ratio = ratios[static_cast<std::size_t>(l)];
    rules.require(
        l < c.num_hidden_layers || ratio == 0,
        fmt::format("compress_ratios[{}] is {}, expected 0 for a draft stage", l, ratio)
    );
    rules.require(
        l < first_decoder_layer(c) || ratio != 2,
        fmt::format(
            "compress_ratios[{}] is 2 above the first decoder layer {}, whose ratio is 1; "
            "the decoder has ratios 0 and 1 only",
            l,
            first_decoder_layer(c)
        )
    );
  }
}

/// Every compressed layer must find entries of its own ratio, and a selection among just those.
void check_sources(const Rules& rules, const ModelConfig& c) {
  const auto& kv = c.attention.kv_source_layer_ids;
  const auto& index = c.indexer.index_source_layer_ids;
  rules.require_layers("kv_source_layer_ids", kv, c.num_hidden_layers);
  rules.require_layers("index_source_layer_ids", index, c.num_hidden_layers);
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
    const LayerRole role = layer_role(c, l);
    if (role.ratio == 0) {
      rules.require(
          !contains(kv, l) && !contains(index, l),
          fmt::format(
              "layer {} is a source of compressed entries or of a selection, but "
              "compress_ratios[{}] is 0",
              l,
              l
          )
      );
      continue;
    }
    rules.require(
        role.kv_source >= 0,
        fmt::format(
            "layer {} has ratio {} and no layer of kv_source_layer_ids at or below it",
            l,
            role.ratio
        )
    );
    const int64_t source_ratio =
        c.attention.compress_ratios[static_cast<std::size_t>(role.kv_source)];
    rules.require(
        source_ratio == role.ratio,
        fmt::format(
            "layer {} has ratio {} and reads the entries of layer {}, whose ratio is {}",
            l,
            role.ratio,
            role.kv_source,
            source_ratio
        )
    );
    rules.require(
        !role.is_kv_source || l <= first_decoder_layer(c),
        fmt::format(
            "layer {} of kv_source_layer_ids lies above the first decoder layer {}, the last "
            "one that sees every token",
            l,
            first_decoder_layer(c)
        )
    );
    rules.require(
        role.index_source >= role.kv_source,
        fmt::format(
            "layer {} reads the entries of layer {} and the selection of layer {}, which is "
            "one among other entries; every layer of kv_source_layer_ids must stand in "
            "index_source_layer_ids",
            l,
            role.kv_source,
            role.index_source
        )
    );
  }
}

void check_indexer(const Rules& rules, const ModelConfig& c) {
  const IndexerConfig& x = c.indexer;
  rules.require(
      x.index_source_layer_ids.empty() || c.attention.qk_rope_head_dim <= x.index_head_dim,
      fmt::format(
          "index_head_dim is {}, less than qk_rope_head_dim {}",
          x.index_head_dim,
          c.attention.qk_rope_head_dim
      )
  );
  if (!x.candidate_source_layer_id) return;
  const int64_t source = *x.candidate_source_layer_id;
  rules.require(
      contains(x.index_source_layer_ids, source),
      fmt::format("candidate_source_layer_id is {}, expected one of index_source_layer_ids", source)
  );
  for (const int64_t kv : c.attention.kv_source_layer_ids) {
    rules.require(
        kv <= source,
        fmt::format(
            "candidate_source_layer_id is {}, but layer {} of kv_source_layer_ids lies above "
            "it and has other entries",
            source,
            kv
        )
    );
  }
  const int64_t candidates = x.candidate_topk_blocks * x.candidate_block_size;
  rules.require(
      candidates >= x.index_topk,
      fmt::format(
          "candidate_topk_blocks {} x candidate_block_size {} are {} entries, fewer than "
          "index_topk {}",
          x.candidate_topk_blocks,
          x.candidate_block_size,
          candidates,
          x.index_topk
      )
  );
}

void check_engram(const Rules& rules, const ModelConfig& c) {
  const EngramConfig& e = c.engram;
  if (!e.enabled()) return;
  rules.require_layers("engram_layer_ids", e.engram_layer_ids, c.num_hidden_layers);
  rules.require(
      e.engram_num_embeddings.size() == e.engram_layer_ids.size(),
      fmt::format(
          "engram_num_embeddings has {} entries, engram_layer_ids {}",
          e.engram_num_embeddings.size(),
          e.engram_layer_ids.size()
      )
  );
  rules.require(
      e.engram_layer_ids.back() < first_decoder_layer(c),
      fmt::format(
          "engram_layer_ids names layer {}, at or above the first decoder layer {}",
          e.engram_layer_ids.back(),
          first_decoder_layer(c)
      )
  );
  const int64_t least = e.rows_per_token() * e.engram_vocab_size;
  for (const int64_t rows : e.engram_num_embeddings) {
    rules.require(
        rows >= least,
        fmt::format(
            "engram_num_embeddings holds {}, less than the {} rows that {} primes from "
            "engram_vocab_size {} up need",
            rows,
            least,
            e.rows_per_token(),
            e.engram_vocab_size
        )
    );
  }
  rules.require(
      e.engram_compressed_vocab_size <= c.vocab_size,
      fmt::format(
          "engram_compressed_vocab_size is {}, more than vocab_size {}",
          e.engram_compressed_vocab_size,
          c.vocab_size
      )
  );
}

void check_experts(const Rules& rules, const ModelConfig& c) {
  rules.require(
      c.moe.num_experts_per_tok <= c.moe.n_routed_experts,
      fmt::format(
          "num_experts_per_tok is {}, n_routed_experts only {}",
          c.moe.num_experts_per_tok,
          c.moe.n_routed_experts
      )
  );
}

void check_draft(const Rules& rules, const ModelConfig& c) {
  const DraftConfig& d = c.draft;
  if (!d.enabled()) return;
  rules.require(
      d.dspark_num_experts_per_tok <= d.dspark_n_routed_experts,
      fmt::format(
          "dspark_num_experts_per_tok is {}, dspark_n_routed_experts only {}",
          d.dspark_num_experts_per_tok,
          d.dspark_n_routed_experts
      )
  );
  rules.require(
      d.num_targets() > 0,
      fmt::format(
          "dspark_target_layer_ids is empty, but {} draft stages need "
          "the input of at least one layer",
          d.num_nextn_predict_layers
      )
  );
  rules.require_layers("dspark_target_layer_ids", d.dspark_target_layer_ids, c.num_hidden_layers);
  const int64_t decoder = first_decoder_layer(c);
  rules.require(
      decoder == c.num_hidden_layers || d.dspark_target_layer_ids.front() >= decoder,
      fmt::format(
          "dspark_target_layer_ids names layer {}, below the first decoder layer {}",
          d.dspark_target_layer_ids.front(),
          decoder
      )
  );
}

void check_vision(const Rules& rules, const ModelConfig& c) {
  if (!c.vision) return;
  const VisionConfig& v = *c.vision;
  rules.require(
      v.hidden_size % v.num_attention_heads == 0 && v.head_dim() % 4 == 0,
      fmt::format(
          "vision_config.hidden_size {} over num_attention_heads {} must give heads of a "
          "multiple of 4 channels",
          v.hidden_size,
          v.num_attention_heads
      )
  );
}

}  // namespace

void check_model_rules(const ModelConfig& config, std::string_view where) {
  const Rules rules(where);
  check_tokens(rules, config);
  check_attention(rules, config.attention);
  check_ratios(rules, config);
  check_sources(rules, config);
  check_indexer(rules, config);
  check_engram(rules, config);
  check_experts(rules, config);
  check_draft(rules, config);
  check_vision(rules, config);
}

}  // namespace di
