#include "engine/cache_size.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/math.h"

namespace di::engine {

int64_t num_state_slots(const EngineOptions& options) {
  return options.max_num_seqs + (options.async_scheduling ? 1 + options.max_num_seqs / 16 : 0);
}

CacheSize plan_cache(
    const EngineOptions& options,
    const checkpoint::Checkpoint& checkpoint,
    const ops::OpTable& ops,
    int64_t context,
    int64_t available,
    const std::optional<model::StepMemory>& measured,
    int64_t num_drafts
) {
  const int64_t least = ceil_div(context, cache::kBlockTokens);
  if (options.num_blocks > 0 && options.num_blocks < least) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "num_blocks is {}, a sequence of {} tokens needs {}; raise num_blocks or lower context",
            options.num_blocks,
            context,
            least
        )
    );
  }
  if (options.engram_memory == "device" && ops.memory().is_host()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "engram_memory is device: backend {} reads the tables where the file is mapped; leave "
            "it at auto",
            ops.name
        )
    );
  }
  const auto budget =
      static_cast<int64_t>(static_cast<double>(available) * options.memory_utilization);
  const int64_t num_slots = num_state_slots(options);
  model::MemoryLimits limits{
      .context = context,
      .num_sequences = num_slots,
      .chunk = options.max_num_batched_tokens,
      .num_blocks = options.num_blocks > 0 ? options.num_blocks : least,
      .num_logit_rows = options.max_num_batched_tokens,
      .num_drafts = num_drafts,
      .engram_on_host = options.engram_memory == "host",
      .measured = measured};
  model::MemoryPlan least_plan = plan_memory(checkpoint, ops, limits);
  if (options.engram_memory == "auto" && least_plan.total() > budget) {
    limits.engram_on_host = true;
    least_plan = plan_memory(checkpoint, ops, limits);
  }
  model::require_fit(least_plan, limits, budget);
  if (options.num_blocks > 0)
    return {options.num_blocks, num_slots, limits.engram_on_host, least_plan};

  const int64_t block_bytes = std::max<int64_t>(least_plan.blocks / least, 1);
  const int64_t room = least + (budget - least_plan.total()) / block_bytes;
  limits.num_blocks = std::min(options.max_num_seqs * least, room);
  return {
      limits.num_blocks, num_slots, limits.engram_on_host, plan_memory(checkpoint, ops, limits)};
}

}  // namespace di::engine
