// What every command that runs the model shares: flags, checks before loading, and the loaded
// parts.
#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "base/thread_pool.h"
#include "engine/loaded_model.h"
#include "engine/options.h"
#include "model/session.h"

namespace di::cli {

/// Which backend runs, and on what.
struct BackendOptions {
  std::string backend = "cpu";  ///< cpu or ref
  std::string isa = "auto";     ///< auto, avx2, avx512, vnni or amx: the cpu backend's kernels
  int threads = 0;              ///< 0: one for each processor
};

/// A model, how much of it, and the backend.
struct RuntimeOptions {
  std::string model;           ///< folder; empty: the default model
  int64_t context = 0;         ///< tokens; 0: max_position_embeddings, at most 8192
  int64_t chunk = 512;         ///< prompt rows of one step
  std::string replay = "off";  ///< off, compact or mask
  int64_t replay_keep = 0;     ///< rows; 0: sliding_window plus rollback
  BackendOptions backend;
};

void add_model_option(CLI::App& command, std::string& model);
void add_backend_options(CLI::App& command, BackendOptions& options);
void add_runtime_options(CLI::App& command, RuntimeOptions& options);

/// A model ready to run one sequence.
class Runtime {
 public:
  /// Refuses within a second what cannot run here; then loads, with a progress bar on a terminal.
  explicit Runtime(const RuntimeOptions& options);

  /// A new, empty sequence. One at a time.
  std::unique_ptr<model::Session> new_session(int64_t prompt_length);

  /// Feeds a prompt in chunks; the logits of its last row.
  std::vector<float> prefill(model::Session& session, std::span<const int32_t> tokens) const;

  const text::Tokenizer& tokenizer() const { return *loaded_.tokenizer; }
  const ModelConfig& config() const { return loaded_.model.config; }
  const ops::OpTable& ops() const { return ops_; }
  const std::string& folder() const { return loaded_.checkpoint->folder(); }
  int64_t context() const { return context_; }
  int64_t chunk() const { return chunk_; }

 private:
  const ops::OpTable& ops_;
  ThreadPool pool_;
  Arena scratch_;
  ops::Exec exec_{pool_, scratch_};
  engine::LoadedModel loaded_;
  std::unique_ptr<cache::KvCache> cache_;
  int64_t context_ = 0;
  int64_t chunk_ = 0;
  model::Replay replay_;
};

}  // namespace di::cli
