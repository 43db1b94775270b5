#include "model/memory_plan.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/math.h"
#include "model/weights.h"

namespace di::model {
namespace {

/// Activations of one row that may be alive at once, in bytes.
int64_t scratch_bytes_per_row(const ModelConfig& config) {
  const int64_t streams = 2 * config.hc.hc_mult * config.hidden_size * 2;
  const int64_t attention = config.attention.query_size() * 2 * 2 +
                            (config.attention.q_lora_rank + config.attention.output_size()) * 4 +
                            config.attention.head_dim * 10 + config.indexer.query_size() * 4 +
                            config.indexer.index_topk * 4 +
                            config.indexer.candidate_topk_blocks * 4;
  const int64_t engram =
      (config.engram.lookup_size() * 3 + (config.hc.hc_mult + 1) * config.hidden_size * 2);
  const int64_t experts = (config.moe.num_experts_per_tok + 1) *
                              (config.moe.moe_intermediate_size * 8 + config.hidden_size * 4) +
                          config.moe.n_routed_experts * 4;
  const int64_t sublayer = std::max({attention, engram, experts});
  return streams + sublayer + config.hidden_size * 16;
}

/// What a row's draft context needs besides: taps, their Q8 form, and the projected vector.
int64_t draft_context_bytes_per_row(const ModelConfig& config) {
  const int64_t taps = config.draft.num_targets() * config.hidden_size;
  return taps * 4 + config.hidden_size * 4 + config.attention.head_dim * 4;
}

/// What a drafted row needs besides: its collapsed streams, and what its confidence is made of.
int64_t draft_bytes_per_row(const ModelConfig& config) {
  return (3 * config.hidden_size + config.draft.dspark_markov_rank) * 2;
}

/// Activations of a pass over `limits.chunk` rows or of all sequences' drafts, whichever is more.
int64_t scratch_bytes(const ModelConfig& config, const MemoryLimits& limits) {
  const int64_t row = scratch_bytes_per_row(config);
  if (limits.num_drafts == 0) return limits.chunk * row;
  return std::max(
      limits.chunk * (row + draft_context_bytes_per_row(config)),
      limits.num_sequences * limits.num_drafts * (row + draft_bytes_per_row(config))
  );
}

}  // namespace

MemoryPlan plan_memory(
    const checkpoint::Checkpoint& checkpoint, const ops::OpTable& ops, const MemoryLimits& limits
) {
  const ModelConfig& config = checkpoint.config();
  const cache::Layout layout = cache::make_layout(config);
  MemoryPlan plan;
  plan.weights = weight_storage_bytes(
      checkpoint, ops, {.drafts = limits.num_drafts > 0, .engram_on_host = limits.engram_on_host}
  );
  const int64_t num_blocks =
      limits.num_blocks > 0 ? limits.num_blocks
                            : limits.num_sequences * ceil_div(limits.context, cache::kBlockTokens);
  plan.blocks = num_blocks * layout.block_bytes;
  plan.slots = limits.num_sequences * layout.slot_bytes;
  plan.scratch = scratch_bytes(config, limits);
  const int64_t num_logit_rows =
      limits.num_logit_rows > 0 ? limits.num_logit_rows : limits.num_sequences;
  plan.logits = (num_logit_rows + limits.num_sequences * limits.num_drafts) * config.vocab_size *
                static_cast<int64_t>(sizeof(float));
  if (limits.measured) {  // logits of rows and of drafts are not there at once
    plan.logits = std::min(plan.logits, limits.measured->scratch);
    plan.scratch = limits.measured->scratch - plan.logits;
    plan.graphs = limits.measured->graphs;
    plan.buffers = limits.measured->buffers;
  }
  return plan;
}

void require_fit(const MemoryPlan& plan, const MemoryLimits& limits, int64_t available) {
  if (plan.total() <= available) return;
  throw Error(
      ErrorCode::kOutOfMemory,
      fmt::format(
          "this model needs {} of memory, {} is available: {}, for {} sequence(s) of {} tokens and "
          "{} rows a step. A shorter context (context), fewer sequences (max_num_seqs), fewer rows "
          "a "
          "step (max_num_batched_tokens), fewer blocks (num_blocks) or a machine with more memory "
          "would help",
          human_bytes(plan.total()),
          human_bytes(available),
          plan_line(plan),
          limits.num_sequences,
          limits.context,
          limits.chunk
      )
  );
}

std::string plan_line(const MemoryPlan& plan) {
  const std::string of_device =
      plan.graphs + plan.buffers == 0
          ? ""
          : fmt::format(
                ", graphs {}, buffers {}", human_bytes(plan.graphs), human_bytes(plan.buffers)
            );
  return fmt::format(
      "weights {}, KV blocks {}, state slots {}, scratch {}, logits {}{}",
      human_bytes(plan.weights),
      human_bytes(plan.blocks),
      human_bytes(plan.slots),
      human_bytes(plan.scratch),
      human_bytes(plan.logits),
      of_device
  );
}

std::string human_bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1000 && unit < 4; ++unit)
    value /= 1000;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace di::model
