#include "cli/runtime.h"

#include <algorithm>

#include "base/math.h"
#include "cli/progress.h"
#include "model/memory_plan.h"

namespace di::cli {
namespace {

/// The part of the engine's options that a lone sequence has, too.
engine::EngineOptions engine_options(const RuntimeOptions& options) {
  engine::EngineOptions result;
  result.context = options.context;
  result.replay = options.replay;
  result.replay_keep = options.replay_keep;
  return result;
}

}  // namespace

void add_model_option(CLI::App& command, std::string& model) {
  command.add_option("-m,--model", model, "Model folder (default: the bundled models/seedling)")
      ->type_name("DIR");
}

void add_backend_options(CLI::App& command, BackendOptions& options) {
  command.add_option("--backend", options.backend, "cpu, or ref: the slow, literal oracle")
      ->check(CLI::IsMember({"cpu", "ref"}))
      ->capture_default_str();
  command.add_option("--isa", options.isa, "Kernels of the cpu backend")
      ->check(CLI::IsMember({"auto", "avx2", "avx512", "vnni", "amx"}))
      ->capture_default_str();
  command.add_option("-t,--threads", options.threads, "Compute threads; 0: one for each processor")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

void add_runtime_options(CLI::App& command, RuntimeOptions& options) {
  add_model_option(command, options.model);
  command
      .add_option(
          "--context",
          options.context,
          "Tokens that prompt and answer may have together; 0: the model's, at most 8192"
      )
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      .add_option(
          "--chunk",
          options.chunk,
          "Prompt rows computed in one step; the text does not depend on it"
      )
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->capture_default_str();
  command
      .add_option(
          "--replay",
          options.replay,
          "Bounded replay of the decoder at prefill: faster, approximate"
      )
      ->check(CLI::IsMember({"off", "compact", "mask"}))
      ->capture_default_str();
  command
      .add_option(
          "--replay-keep",
          options.replay_keep,
          "Last prompt rows that replay computes in full; 0: as few as allowed"
      )
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add_backend_options(command, options.backend);
}

Runtime::Runtime(const RuntimeOptions& options)
    : ops_(engine::select_ops(options.backend.backend, options.backend.isa)),
      pool_(options.backend.threads) {
  auto checkpoint = engine::open_checkpoint(engine::find_model(options.model), pool_);
  const ModelConfig& config = checkpoint->config();
  context_ = engine::resolve_context(engine_options(options), config);
  chunk_ = std::min(options.chunk, context_);
  replay_ = engine::resolve_replay(engine_options(options), config);
  const model::MemoryLimits limits{.context = context_, .num_sequences = 1, .chunk = chunk_};
  model::require_fit(
      model::plan_memory(*checkpoint, ops_, limits), limits, model::available_memory()
  );
  ProgressBar bar("Loading");
  loaded_ = engine::load(
      std::move(checkpoint),
      ops_,
      pool_,
      [&](int64_t done, int64_t total) { bar.update(done, total); }
  );
  cache_ = std::make_unique<cache::KvCache>(
      cache::make_layout(config), ceil_div(context_, cache::kBlockTokens), /*num_slots=*/1
  );
}

std::unique_ptr<model::Session> Runtime::new_session(int64_t prompt_length) {
  auto session = std::make_unique<model::Session>(
      loaded_.model, *cache_, ops_, exec_, model::ForwardOptions{.replay = replay_}
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
