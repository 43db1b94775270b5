// StepRehearsal: what the worst steps take of a device's memory, found before a weight is read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "cache/kv_cache.h"
#include "checkpoint/checkpoint.h"
#include "engine/cuda/recorded_sizes.h"
#include "engine/make_device.h"
#include "model/memory_plan.h"
#include "model/model.h"
#include "ops/cuda/graph.h"
#include "ops/exec.h"

namespace di::engine::cuda {

/// Records passes over addresses that have no memory: ops take their scratch and launch their
/// kernels as ever, and nothing runs. So the numbers are those of the ops themselves.
class StepRehearsal {
 public:
  StepRehearsal(
      const checkpoint::Checkpoint& checkpoint,
      const ops::OpTable& ops,
      ThreadPool& pool,
      const StepLimits& limits
  );

  /// Throws Error{kUnsupported} when an op refuses the model.
  model::StepMemory measure();

 private:
  /// A step of `rows` rows of `sequences` sequences, as even as may be, at the end of the context.
  model::Step step_of(int64_t rows, int64_t sequences) const;
  /// A pass over the step; filled up to the size of a recorded one, if there is any.
  void pass(const model::Step& step, const RecordedSize& size);
  /// Records it and forgets it.
  void rehearse(int64_t rows, int64_t sequences);
  /// A pass over a step that only decodes, of so many rows a sequence, as it is recorded.
  void decode(int64_t sequences, int64_t most_rows);
  /// A pass that drafts, as it is recorded.
  void draft(int64_t sequences);
  /// Device memory of `count` recordings of what `enqueue` does.
  int64_t graph_bytes(int64_t count, const std::function<void()>& enqueue);
  /// Of all recordings that are kept.
  int64_t all_graph_bytes();

  const ops::OpTable& ops_;
  StepLimits limits_;
  model::Model model_;
  cache::KvCache cache_;
  std::shared_ptr<std::byte> addresses_;  // in place of tokens and block tables
  std::shared_ptr<CUstream_st> stream_;
  Arena scratch_;
  ops::Exec exec_;
};

}  // namespace di::engine::cuda
