#include "engine/loaded_model.h"

#include <filesystem>

#include <fmt/format.h>

#include "base/error.h"
#include "base/isa.h"
#include "text/engram_token_map.h"

#if DI_HAS_CUDA
#include "ops/cuda/cuda_ops.h"
#endif

namespace di::engine {
namespace {

namespace fs = std::filesystem;

std::vector<int32_t> engram_token_map(const ModelConfig& config, const text::Tokenizer& tokenizer) {
  if (!config.engram.enabled()) return {};
  return text::build_engram_token_map(tokenizer, static_cast<int32_t>(config.vocab_size))
      .compressed;
}

const ops::OpTable& cuda_table([[maybe_unused]] const std::string& arithmetic) {
#if DI_HAS_CUDA
  return arithmetic == "canonical" ? ops::canonical_cuda_ops() : ops::cuda_ops();
#else
  throw Error(
      ErrorCode::kUnsupported,
      "backend cuda: this program was built without it; build it where nvcc is on the PATH"
  );
#endif
}

}  // namespace

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

const ops::OpTable& select_ops(
    const std::string& backend, const std::string& isa, const std::string& cuda_arithmetic
) {
  if (backend == "ref") return ops::ref_ops();
  if (backend == "cuda") return cuda_table(cuda_arithmetic);
  const Isa best = best_isa(detect_cpu());
  const Isa wanted = isa == "auto" ? best : isa_from_name(isa);
  if (wanted > best) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("isa {}: this processor goes up to {}", isa, name_of(best))
    );
  }
  return ops::cpu_ops(wanted);
}

const ops::OpTable& select_ops(const EngineOptions& options) {
  return select_ops(options.backend, options.isa, options.cuda_arithmetic);
}

std::unique_ptr<checkpoint::Checkpoint> open_checkpoint(
    const std::string& folder, ThreadPool& pool
) {
  return std::make_unique<checkpoint::Checkpoint>(checkpoint::Checkpoint::open(folder, pool));
}

LoadedModel load(
    std::unique_ptr<checkpoint::Checkpoint> checkpoint,
    const ops::OpTable& ops,
    ThreadPool& pool,
    const checkpoint::LoadProgress& progress,
    const model::LoadOptions& options
) {
  LoadedModel loaded;
  loaded.checkpoint = std::move(checkpoint);
  const std::string& folder = loaded.checkpoint->folder();
  loaded.tokenizer =
      std::make_unique<text::Tokenizer>(text::Tokenizer::load(folder + "/tokenizer.json"));
  loaded.model = model::load_model(
      *loaded.checkpoint,
      engram_token_map(loaded.checkpoint->config(), *loaded.tokenizer),
      ops,
      pool,
      progress,
      options
  );
  return loaded;
}

}  // namespace di::engine
