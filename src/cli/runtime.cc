#include "cli/runtime.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/math.h"
#include "cli/progress.h"
#include "model/memory_plan.h"

namespace di::cli {
Runtime::Runtime(const engine::EngineOptions& options, const RuntimeSize& size)
    : ops_(engine::select_ops(options)), pool_(options.threads) {
  engine::validate(options);
  auto checkpoint = engine::open_checkpoint(engine::find_model(options.model), pool_);
  const ModelConfig& config = checkpoint->config();
  if (size.num_drafts > 0 && !config.draft.enabled()) {
    throw Error(
        ErrorCode::kUnsupported, fmt::format("{}: this model has no drafter", checkpoint->folder())
    );
  }
  context_ = engine::resolve_context(options, config);
  const int64_t rows = options.chunk > 0 ? options.chunk : options.max_num_batched_tokens;
  chunk_ = std::min(rows, context_);
  replay_ = engine::resolve_replay(options, config);
  const int64_t verified = size.num_sequences * (1 + size.num_drafts);
  const model::MemoryLimits limits{
      .context = context_,
      .num_sequences = size.num_sequences,
      .chunk = std::max(chunk_, verified),
      .num_logit_rows = verified,
      .num_drafts = size.num_drafts};
  model::require_fit(
      model::plan_memory(*checkpoint, ops_, limits), limits, ops_.memory().available()
  );
  ProgressBar bar("Loading");
  loaded_ = engine::load(
      std::move(checkpoint),
      ops_,
      pool_,
      [&](int64_t done, int64_t total) { bar.update(done, total); },
      {.drafts = size.num_drafts > 0}
  );
  cache_ = std::make_unique<cache::KvCache>(
      cache::make_layout(config),
      size.num_sequences * ceil_div(context_, cache::kBlockTokens),
      size.num_sequences,
      ops_.memory()
  );
}

std::unique_ptr<model::Session> Runtime::new_session(int64_t prompt_length) {
  auto session = std::make_unique<model::Session>(
      loaded_.model, *cache_, ops_, *exec_, model::ForwardOptions{.replay = replay_}
  );
  session->set_prompt_length(prompt_length);
  return session;
}

std::vector<float> Runtime::prefill(model::Session& session, std::span<const int32_t> tokens)
    const {
  std::vector<float> logits;
  const auto step = static_cast<std::size_t>(chunk_);
  for (std::size_t begin = 0; begin < tokens.size(); begin += step) {
    const std::size_t count = std::min(step, tokens.size() - begin);
    const bool last = begin + count == tokens.size();
    logits = session.feed(
        tokens.subspan(begin, count), last ? model::LogitRows::kLast : model::LogitRows::kNone
    );
  }
  return logits;
}

}  // namespace di::cli
