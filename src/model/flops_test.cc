#include "model/flops.h"

#include <algorithm>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "config/known_models.h"

namespace di::model {
namespace {

/// Five layers with one of each role: window only, source of ratio 2 with Engram, follower, border
/// of ratio 1 and candidate source, consumer of candidates. Sizes are small and all different.
ModelConfig tiny_config() {
  ModelConfig c;
  c.vocab_size = 11;
  c.hidden_size = 32;
  c.num_hidden_layers = 5;
  c.attention = {
      .num_attention_heads = 2,
      .head_dim = 64,
      .q_lora_rank = 96,
      .o_lora_rank = 160,
      .o_groups = 1,
      .sliding_window = 3,
      .rope_scaling = {},
      .compress_ratios = {0, 2, 2, 1, 1},
      .kv_source_layer_ids = {1, 3}};
  c.indexer = {
      .index_source_layer_ids = {1, 3, 4},
      .index_n_heads = 3,
      .index_head_dim = 32,
      .index_topk = 4,
      .candidate_source_layer_id = 3,
      .candidate_topk_blocks = 2,
      .candidate_block_size = 2};
  c.moe = {
      .moe_intermediate_size = 128,
      .n_routed_experts = 7,
      .n_shared_experts = 1,
      .num_experts_per_tok = 2};
  c.hc = {.hc_mult = 2};
  c.engram = {
      .engram_layer_ids = {1},
      .engram_num_embeddings = {100},
      .engram_max_ngram_size = 2,
      .engram_n_heads = 3,
      .engram_head_dim = 32};
  return c;
}

/// The formula once more, row by row and layer by layer, with no closed form.
class SlowCounter {
 public:
  SlowCounter(const ModelConfig& config, const Replay& replay) : c_(config), replay_(replay) {}

  Flops count(const FlopsRows& rows) {
    flops_ = {};
    const int64_t border = first_decoder_layer(c_);
    const bool compact = replay_.mode == Replay::Mode::kCompact;
    for (int64_t p = rows.start; p < rows.start + rows.num_rows; ++p) {
      const bool is_kept = !compact || p >= rows.prompt_length - replay_.keep;
      for (int64_t l = 0; l < c_.num_hidden_layers; ++l) {
        const LayerRole role = layer_role(c_, l);
        if (l > border && !is_kept) break;
        site_before(l == 0);
        if (role.engram >= 0) engram();
        if (role.is_kv_source) kv_source(p, role);
        if (l == border && !is_kept) break;
        attention(p + 1, role);
        site_after();
        site_before(false);
        experts();
        site_after();
      }
      if (is_kept || border == c_.num_hidden_layers) add(8, c_.hc.hc_mult * c_.hidden_size);
    }
    add(4, rows.rows_with_logits * c_.hidden_size * c_.vocab_size);
    return flops_;
  }

 private:
  void add(int64_t weight, int64_t count) {
    flops_.total += weight * count;
    flops_.unweighted += 2 * count;
  }
  void add_pairs(int64_t weight, int64_t count) {
    add(weight, count);
    flops_.attention += weight * count;
  }
  void site_before(bool is_first) {
    const int64_t values = c_.hc.hc_mult * c_.hidden_size;
    add(8, values * (2 * c_.hc.hc_mult + c_.hc.hc_mult * c_.hc.hc_mult));
    if (!is_first) add(8, values);
  }
  void site_after() { add(8, c_.hc.hc_mult * (c_.hc.hc_mult + 1) * c_.hidden_size); }
  void engram() {
    const int64_t looked_up = c_.engram.lookup_size();
    add(2, looked_up * (c_.hc.hc_mult + 1) * c_.hidden_size);
    add(8, c_.hc.hc_mult * c_.hidden_size);
  }
  void kv_source(int64_t p, const LayerRole& role) {
    add(4, (role.ratio > 1 ? 2 : 1) * c_.attention.head_dim * c_.hidden_size);
    if ((p + 1) % role.ratio == 0) add(4, c_.attention.head_dim * c_.indexer.index_head_dim);
  }
  void attention(int64_t visible, const LayerRole& role) {
    const AttentionConfig& a = c_.attention;
    const IndexerConfig& x = c_.indexer;
    const int64_t heads_dim = a.num_attention_heads * a.head_dim;
    add(2,
        c_.hidden_size * a.q_lora_rank + a.q_lora_rank * heads_dim + c_.hidden_size * a.head_dim);
    add(2, heads_dim * a.o_lora_rank + a.o_groups * a.o_lora_rank * c_.hidden_size);
    add_pairs(4, 2 * heads_dim * std::min(visible, a.sliding_window));
    if (role.ratio == 0) return;
    const int64_t entries = visible / role.ratio;
    add_pairs(4, 2 * heads_dim * std::min(entries, x.index_topk));
    if (!role.is_index_source) return;
    const int64_t index_dim = x.index_n_heads * x.index_head_dim;
    add(2, a.q_lora_rank * index_dim);
    add(4, c_.hidden_size * x.index_n_heads);
    const int64_t blocks = (entries + x.candidate_block_size - 1) / x.candidate_block_size;
    const int64_t scored = role.uses_candidates
                               ? std::min(blocks, x.candidate_topk_blocks) * x.candidate_block_size
                               : entries;
    add_pairs(1, index_dim * scored);
  }
  void experts() {
    add(4, c_.hidden_size * c_.moe.n_routed_experts);
    add(2, (c_.moe.num_experts_per_tok + 1) * 3 * c_.hidden_size * c_.moe.moe_intermediate_size);
  }

  const ModelConfig& c_;
  Replay replay_;
  Flops flops_;
};

constexpr Replay kOff{};
constexpr Replay kCompact{.mode = Replay::Mode::kCompact, .keep = 6};

TEST(Flops, ClosedSumsEqualLoops) {
  for (int64_t ratio = 1; ratio <= 9; ++ratio) {
    for (const int64_t cap : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{5}, INT64_MAX}) {
      int64_t sum = 0;
      for (int64_t n = 1; n <= 120; ++n) {
        sum += std::min(n / ratio, cap);
        ASSERT_EQ(sum_of_capped_quotients(n, ratio, cap), sum) << n << " " << ratio << " " << cap;
      }
    }
  }
  EXPECT_EQ(sum_of_capped_quotients(0, 2, 3), 0);
  EXPECT_EQ(sum_of_capped_quotients(-5, 2, 3), 0);
}

TEST(Flops, ARowCostsTheSumOfItsParts) {
  // The third token of a prompt, worked out by hand for tiny_config():
  const int64_t experts = 2 * 3 * 32 * 128 * 3 + 4 * 32 * 7;
  const int64_t projections = 2 * (32 * (96 + 64) + 96 * 128 + 128 * 160 + 160 * 32);
  const int64_t engram = 2 * 96 * 32 * 3 + 8 * 64;
  const int64_t kv_sources = 4 * 32 * 2 * 64 + 4 * 32 * 1 * 64;
  const int64_t index_keys = 4 * 64 * 32;  // of ratio 1 only: the pair (2, 3) is not complete
  const int64_t index_queries = 3 * (2 * 96 * 96 + 4 * 32 * 3);
  const int64_t mix = 8 * 64 * 8 + 8 * 64;
  const int64_t streams =
      10 * (mix + 8 * 3 * 64);  // ten sites; the head's collapse for the first's
  const int64_t head = 4 * 32 * 11;
  // Pairs: window 3 in five layers; entries 1, 1, 3, 3; index scores 1, 3 and two blocks of 2.
  const int64_t pairs = 4 * 2 * 128 * (5 * 3 + 1 + 1 + 3 + 3) + 96 * (1 + 3 + 4);

  const Flops flops =
      FlopsCounter(tiny_config())
          .count({.start = 2, .num_rows = 1, .prompt_length = 3, .rows_with_logits = 1});
  EXPECT_EQ(flops.attention, pairs);
  EXPECT_EQ(
      flops.total,
      5 * (experts + projections) + engram + kv_sources + index_keys + index_queries + streams +
          head + pairs
  );
}

TEST(Flops, TheHeadIsPaidByRowsWithLogits) {
  const FlopsCounter counter(tiny_config());
  const Flops without = counter.count({.start = 0, .num_rows = 4, .prompt_length = 9});
  const Flops with =
      counter.count({.start = 0, .num_rows = 4, .prompt_length = 9, .rows_with_logits = 4});
  EXPECT_EQ(with.total - without.total, 4 * 4 * 32 * 11);
  EXPECT_EQ(with.unweighted - without.unweighted, 2 * 4 * 32 * 11);
  EXPECT_EQ(with.attention, without.attention);
}

TEST(Flops, EqualTheFormulaRowByRow) {
  std::mt19937 random(7);
  const auto below = [&](int64_t count) {
    return std::uniform_int_distribution<int64_t>(0, count - 1)(random);
  };
  ModelConfig encoder_only = tiny_config();
  encoder_only.num_hidden_layers = 3;
  for (const ModelConfig& config : {tiny_config(), encoder_only, v41_flash_config()}) {
    for (const Replay& replay : {kOff, kCompact}) {
      const FlopsCounter counter(config, replay);
      SlowCounter slow(config, replay);
      for (int i = 0; i < 200; ++i) {
        FlopsRows rows{.start = below(40), .num_rows = below(30)};
        rows.prompt_length = 1 + below(60);
        rows.rows_with_logits = below(rows.num_rows + 1);
        ASSERT_EQ(counter.count(rows), slow.count(rows))
            << rows.start << " + " << rows.num_rows << " of " << rows.prompt_length;
      }
    }
  }
}

TEST(Flops, PartsOfASequenceAddUpToTheWhole) {
  constexpr int64_t kPrompt = 57;
  for (const Replay& replay : {kOff, kCompact}) {
    const FlopsCounter counter(tiny_config(), replay);
    const Flops whole =
        counter.count({.num_rows = kPrompt, .prompt_length = kPrompt, .rows_with_logits = 1});
    for (const int64_t chunk : {1, 2, 7, 56}) {
      Flops sum;
      for (int64_t start = 0; start < kPrompt; start += chunk) {
        const int64_t rows = std::min(chunk, kPrompt - start);
        sum += counter.count(
            {.start = start,
             .num_rows = rows,
             .prompt_length = kPrompt,
             .rows_with_logits = start + rows == kPrompt ? 1 : 0}
        );
      }
      EXPECT_EQ(sum, whole) << "chunks of " << chunk;
    }
  }
}

TEST(Flops, ADecodeRowCostsWhatTheSamePromptRowCosts) {
  const FlopsCounter counter(tiny_config(), kCompact);
  const Flops prefill =
      counter.count({.start = 50, .num_rows = 1, .prompt_length = 51, .rows_with_logits = 1});
  const Flops decode =
      counter.count({.start = 50, .num_rows = 1, .prompt_length = 20, .rows_with_logits = 1});
  EXPECT_EQ(prefill, decode);
}

TEST(Flops, OnlyCompactReplaySavesWork) {
  const FlopsRows prompt{.num_rows = 40, .prompt_length = 40};
  const Flops off = FlopsCounter(tiny_config()).count(prompt);
  const Flops mask =
      FlopsCounter(tiny_config(), {.mode = Replay::Mode::kMask, .keep = 6}).count(prompt);
  const Flops compact = FlopsCounter(tiny_config(), kCompact).count(prompt);
  EXPECT_EQ(mask, off);
  EXPECT_LT(compact.total, off.total);
  EXPECT_LT(compact.attention, off.attention);
}

TEST(Flops, TheReleaseCostsWhatItsSizesSay) {
  // About 34.2 GFLOP a row of the backbone, half of it in the encoder, and 1.32 for the head.
  const ModelConfig config = v41_flash_config();
  const FlopsRows row{.start = 1000, .num_rows = 1, .prompt_length = 4000};
  const FlopsRows row_with_logits{
      .start = 1000, .num_rows = 1, .prompt_length = 4000, .rows_with_logits = 1};
  const FlopsCounter whole(config);
  const FlopsCounter replayed(config, {.mode = Replay::Mode::kCompact, .keep = 256});
  EXPECT_NEAR(static_cast<double>(whole.count(row).unweighted), 34.2e9, 0.7e9);
  EXPECT_NEAR(static_cast<double>(replayed.count(row).unweighted), 17.3e9, 0.4e9);
  EXPECT_EQ(
      whole.count(row_with_logits).unweighted - whole.count(row).unweighted,
      2 * config.hidden_size * config.vocab_size
  );
}

}  // namespace
}  // namespace di::model
