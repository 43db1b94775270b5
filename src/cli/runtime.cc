#include "cli/runtime.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/progress.h"
#include "text/engram_token_map.h"

namespace di::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDefaultContext = 8192;

model::Replay replay_from(const RuntimeOptions& options, const ModelConfig& config) {
  using Mode = model::Replay::Mode;
  const int64_t least = config.attention.sliding_window + cache::kRollbackTokens;
  const int64_t keep = options.replay_keep == 0 ? least : options.replay_keep;
  if (options.replay == "off") return {};
  if (keep < least) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "--replay-keep is {}, at least {} rows are needed (window and rollback)", keep, least
        )
    );
  }
  return {options.replay == "mask" ? Mode::kMask : Mode::kCompact, keep};
}

int64_t context_from(const RuntimeOptions& options, const ModelConfig& config) {
  if (options.context > config.max_position_embeddings) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "--context is {}, the model ends at max_position_embeddings {}",
            options.context,
            config.max_position_embeddings
        )
    );
  }
  return options.context > 0 ? options.context
                             : std::min(kDefaultContext, config.max_position_embeddings);
}

std::vector<int32_t> engram_token_map(const ModelConfig& config, const text::Tokenizer& tokenizer) {
  if (!config.engram.enabled()) return {};
  return text::build_engram_token_map(tokenizer, static_cast<int32_t>(config.vocab_size))
      .compressed;
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

std::string find_model(const std::string& model) {
  if (!model.empty()) return model;
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  const fs::path places[] = {"models/seedling", program / "../../models/seedling"};
  for (const fs::path& place : places) {
    if (fs::exists(place / "config.json", ignored)) return place.lexically_normal().string();
  }
  throw Error(
      ErrorCode::kNotFound,
      fmt::format(
          "no default model at {} or {}; name a model folder with --model",
          places[0].string(),
          places[1].lexically_normal().string()
      )
  );
}

const ops::OpTable& select_ops(const BackendOptions& options) {
  if (options.backend == "ref") return ops::ref_ops();
  const Isa best = best_isa(detect_cpu());
  const Isa isa = options.isa == "auto" ? best : isa_from_name(options.isa);
  if (isa > best) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("--isa {}: this processor goes up to {}", options.isa, name_of(best))
    );
  }
  return ops::cpu_ops(isa);
}

Runtime::Runtime(const RuntimeOptions& options)
    : ops_(select_ops(options.backend)), pool_(options.backend.threads) {
  const std::string folder = find_model(options.model);
  checkpoint_ =
      std::make_unique<checkpoint::Checkpoint>(checkpoint::Checkpoint::open(folder, pool_));
  const ModelConfig& config = checkpoint_->config();
  context_ = context_from(options, config);
  chunk_ = std::min(options.chunk, context_);
  replay_ = replay_from(options, config);
  const model::MemoryLimits limits{.context = context_, .num_sequences = 1, .chunk = chunk_};
  model::require_fit(
      model::plan_memory(*checkpoint_, ops_, limits), limits, model::available_memory()
  );
  tokenizer_ = std::make_unique<text::Tokenizer>(text::Tokenizer::load(folder + "/tokenizer.json"));

  ProgressBar bar("Loading");
  model_ = model::load_model(
      *checkpoint_,
      engram_token_map(config, *tokenizer_),
      ops_,
      pool_,
      [&](int64_t done, int64_t total) { bar.update(done, total); }
  );
  const int64_t blocks = (context_ + cache::kBlockTokens - 1) / cache::kBlockTokens;
  cache_ = std::make_unique<cache::KvCache>(cache::make_layout(config), blocks, /*num_slots=*/1);
}

std::unique_ptr<model::Session> Runtime::new_session(int64_t prompt_length) {
  auto session = std::make_unique<model::Session>(
      model_, *cache_, ops_, exec_, model::ForwardOptions{.replay = replay_}
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
