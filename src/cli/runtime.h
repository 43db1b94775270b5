// Runtime: a model ready to run without an engine. For commands that look at a lone sequence, chat
// and eval, and for those that run sequences by rules of their own: calibrate.
#pragma once

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "engine/loaded_model.h"
#include "engine/options.h"
#include "model/session.h"

namespace di::cli {

/// What is to run at once.
struct RuntimeSize {
  int64_t num_sequences = 1;
  int64_t num_drafts =
      0;  ///< tokens that each drafts, and verifies as rows; 0: no drafter is loaded
};

/// A model ready to run.
class Runtime {
 public:
  /// Refuses within a second what cannot run here; then loads, with a progress bar on a terminal.
  explicit Runtime(const engine::EngineOptions& options, const RuntimeSize& size = {});

  /// A new, empty sequence. One at a time unless there is room for more.
  std::unique_ptr<model::Session> new_session(int64_t prompt_length);

  /// Feeds a prompt in chunks; the logits of its last row.
  std::vector<float> prefill(model::Session& session, std::span<const int32_t> tokens) const;

  const model::Model& model() const { return loaded_.model; }
  cache::KvCache& cache() { return *cache_; }
  ops::Exec& exec() { return *exec_; }
  const model::Replay& replay() const { return replay_; }
  const text::Tokenizer& tokenizer() const { return *loaded_.tokenizer; }
  const ModelConfig& config() const { return loaded_.model.config; }
  const ops::OpTable& ops() const { return ops_; }
  const std::string& folder() const { return loaded_.checkpoint->folder(); }
  int64_t context() const { return context_; }
  int64_t chunk() const { return chunk_; }

 private:
  const ops::OpTable& ops_;
  ThreadPool pool_;
  ops::OwnedExec exec_{pool_, ops_.memory()};
  engine::LoadedModel loaded_;
  std::unique_ptr<cache::KvCache> cache_;
  int64_t context_ = 0;
  int64_t chunk_ = 0;
  model::Replay replay_;
};

}  // namespace di::cli
