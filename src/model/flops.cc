#include "model/flops.h"

#include <algorithm>
#include <limits>

namespace di::model {
namespace {

// FP8-equivalent FLOPs of one multiply-add.
constexpr int64_t kFp4 = 1;
constexpr int64_t kFp8 = 2;
constexpr int64_t kBf16 = 4;
constexpr int64_t kFp32 = 8;

constexpr int64_t kNoCap = std::numeric_limits<int64_t>::max();

}  // namespace

Flops& Flops::operator+=(const Flops& other) {
  attention += other.attention;
  total += other.total;
  unweighted += other.unweighted;
  return *this;
}

void FlopsCounter::Price::add(int64_t weight, int64_t count) {
  units += weight * count;
  multiply_adds += count;
}

void FlopsCounter::Price::add(const Price& other, int64_t times) {
  units += other.units * times;
  multiply_adds += other.multiply_adds * times;
}

int64_t sum_of_capped_quotients(int64_t n, int64_t ratio, int64_t cap) {
  if (n <= 0) return 0;
  // Quotients grow up to n or to the last t whose quotient is below the cap; all others are cap.
  const int64_t growing = n / ratio < cap ? n : ratio * cap - 1;
  const int64_t last = growing / ratio;
  return last * (growing + 1) - ratio * (last * (last + 1) / 2) + (n - growing) * cap;
}

int64_t FlopsCounter::Pairs::of_rows(int64_t start, int64_t end) const {
  // Decode rows are many and come alone: they take the short way.
  if (end - start == 1) return std::min((end + shift) / ratio, cap);
  return sum_of_capped_quotients(end + shift, ratio, cap) -
         sum_of_capped_quotients(start + shift, ratio, cap);
}

FlopsCounter::FlopsCounter(const ModelConfig& config, const Replay& replay) {
  const bool has_decoder = first_decoder_layer(config) < config.num_hidden_layers;
  if (replay.mode == Replay::Mode::kCompact && has_decoder) keep_ = replay.keep;
  for (const LayerRole& role : layer_roles(config))
    add_layer(config, role);
  add_hyper_connections(config);
  logits_row_.add(kBf16, config.hidden_size * config.vocab_size);
}

void FlopsCounter::add_layer(const ModelConfig& c, const LayerRole& role) {
  const AttentionConfig& a = c.attention;
  const int64_t hidden = c.hidden_size;
  const int64_t experts = c.moe.num_experts_per_tok + c.moe.n_shared_experts;
  Price& row = role.in_decoder ? decoder_row_ : encoder_row_;
  row.add(kFp8, 3 * hidden * c.moe.moe_intermediate_size * experts);
  row.add(kBf16, hidden * c.moe.n_routed_experts);
  row.add(kFp8, hidden * (a.q_lora_rank + a.head_dim));
  row.add(kFp8, a.q_lora_rank * a.query_size());
  row.add(kFp8, a.query_size() * a.o_lora_rank);
  row.add(kFp8, a.output_size() * hidden);
  if (role.engram >= 0) {
    row.add(kFp8, c.engram.lookup_size() * hidden * (c.hc.hc_mult + 1));
    row.add(kFp32, c.hc.hc_mult * hidden);
  }

  Pairs attended{.cap = a.sliding_window, .in_decoder = role.in_decoder, .price = {}};
  attended.price.add(kBf16, 2 * a.query_size());
  add_pairs(attended);
  if (role.ratio == 0) return;
  attended.ratio = role.ratio;
  attended.cap = c.indexer.index_topk;
  add_pairs(attended);
  if (role.is_kv_source) add_kv_source(c, role);
  if (role.is_index_source) add_index_source(c, role);
}

void FlopsCounter::add_kv_source(const ModelConfig& c, const LayerRole& role) {
  // A source sees every row, also the one at the replay border.
  const int64_t projections = role.ratio == 1 ? 1 : 2;
  encoder_row_.add(kBf16, c.hidden_size * projections * c.attention.head_dim);
  const auto same = [&](const Keys& keys) { return keys.ratio == role.ratio; };
  auto keys = std::find_if(keys_.begin(), keys_.end(), same);
  if (keys == keys_.end()) keys = keys_.insert(keys_.end(), {.ratio = role.ratio, .price = {}});
  keys->price.add(kBf16, c.attention.head_dim * c.indexer.index_head_dim);
}

void FlopsCounter::add_index_source(const ModelConfig& c, const LayerRole& role) {
  Price& row = role.in_decoder ? decoder_row_ : encoder_row_;
  row.add(kFp8, c.attention.q_lora_rank * c.indexer.query_size());
  row.add(kBf16, c.hidden_size * c.indexer.index_n_heads);

  Pairs scored{.ratio = role.ratio, .cap = kNoCap, .in_decoder = role.in_decoder, .price = {}};
  scored.price.add(kFp4, c.indexer.query_size());
  if (role.uses_candidates) {
    // Whole blocks of entries; the newest of them counts from its first entry.
    const int64_t block = c.indexer.candidate_block_size;
    const Price entry = scored.price;
    scored.ratio = role.ratio * block;
    scored.shift = role.ratio * (block - 1);
    scored.cap = c.indexer.candidate_topk_blocks;
    scored.price.add(entry, block - 1);
  }
  add_pairs(scored);
}

void FlopsCounter::add_hyper_connections(const ModelConfig& c) {
  const int64_t streams = c.hc.hc_mult;
  const int64_t stream_values = streams * c.hidden_size;
  Price collapse;
  collapse.add(kFp32, stream_values);
  Price mix = collapse;
  mix.add(kFp32, stream_values * c.hc.mix_size());
  Price site = mix;
  site.add(kFp32, (streams + 1) * stream_values);

  const int64_t encoder_layers = first_decoder_layer(c);
  encoder_row_.add(site, 2 * encoder_layers);
  decoder_row_.add(site, 2 * (c.num_hidden_layers - encoder_layers));
  // The first site finds equal streams and the last collapse is the head's.
  encoder_row_.add(collapse, -1);
  decoder_row_.add(collapse, 1);
  if (keep_) {
    // The mixing before the border layer's attention still runs on every row.
    encoder_row_.add(mix, 1);
    decoder_row_.add(mix, -1);
  }
}

void FlopsCounter::add_pairs(const Pairs& pairs) {
  const auto same = std::find_if(pairs_.begin(), pairs_.end(), [&](const Pairs& other) {
    return other.ratio == pairs.ratio && other.shift == pairs.shift && other.cap == pairs.cap &&
           other.in_decoder == pairs.in_decoder;
  });
  if (same == pairs_.end()) {
    pairs_.push_back(pairs);
  } else {
    same->price.add(pairs.price);
  }
}

Flops FlopsCounter::count(const FlopsRows& rows) const {
  const int64_t end = rows.start + rows.num_rows;
  const int64_t border = keep_ ? rows.prompt_length - *keep_ : 0;
  const int64_t decoder_start = std::clamp(border, rows.start, end);

  Price attention;
  for (const Pairs& pairs : pairs_) {
    const int64_t start = pairs.in_decoder ? decoder_start : rows.start;
    attention.add(pairs.price, pairs.of_rows(start, end));
  }
  Price total = attention;
  total.add(encoder_row_, rows.num_rows);
  total.add(decoder_row_, end - decoder_start);
  total.add(logits_row_, rows.rows_with_logits);
  for (const Keys& keys : keys_)
    total.add(keys.price, end / keys.ratio - rows.start / keys.ratio);
  return {
      .attention = attention.units, .total = total.units, .unweighted = 2 * total.multiply_adds};
}

}  // namespace di::model
