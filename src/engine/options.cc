#include "engine/options.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "cache/layout.h"

namespace di::engine {
namespace {

constexpr int64_t kDefaultContext = 8192;

template <class T>
void expect_range(const char* name, T value, T least, T most) {
  if (value >= least && value <= most) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} is {}, it must be between {} and {}", name, value, least, most)
  );
}

void expect_one_of(
    const char* name, const std::string& value, std::initializer_list<const char*> known
) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} is \"{}\", it must be one of {}", name, value, fmt::join(known, ", "))
  );
}

}  // namespace

void validate(const EngineOptions& options) {
  constexpr int64_t kMost = int64_t{1} << 40;
  expect_one_of("backend", options.backend, {"cpu", "ref"});
  expect_one_of("isa", options.isa, {"auto", "avx2", "avx512", "vnni", "amx"});
  expect_one_of("replay", options.replay, {"off", "compact", "mask"});
  expect_range("threads", options.threads, 0, 1024);
  expect_range<int64_t>("context", options.context, 0, kMost);
  expect_range<int64_t>("max_num_seqs", options.max_num_seqs, 1, 65536);
  expect_range<int64_t>("max_num_batched_tokens", options.max_num_batched_tokens, 1, 65536);
  expect_range<int64_t>("chunk", options.chunk, 0, 65536);
  expect_range<int64_t>("num_blocks", options.num_blocks, 0, kMost);
  expect_range("memory_utilization", options.memory_utilization, 0.01, 1.0);
  expect_range("max_step_ms", options.max_step_ms, 0.0, 1e6);
  expect_range("patience_seconds", options.patience_seconds, 0.0, 1e6);
  expect_range<int64_t>("max_queued_requests", options.max_queued_requests, 1, kMost);
  expect_range<int64_t>("max_queued_tokens", options.max_queued_tokens, 1, kMost);
  expect_range<int64_t>("replay_keep", options.replay_keep, 0, kMost);
  expect_range("peak_flops", options.peak_flops, 0.0, 1e20);
  if (options.max_num_batched_tokens < options.max_num_seqs) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "max_num_batched_tokens is {}, less than max_num_seqs {}: a step could not carry one "
            "row of every running sequence",
            options.max_num_batched_tokens,
            options.max_num_seqs
        )
    );
  }
}

int64_t resolve_context(const EngineOptions& options, const ModelConfig& config) {
  if (options.context > config.max_position_embeddings) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "context is {}, the model ends at max_position_embeddings {}",
            options.context,
            config.max_position_embeddings
        )
    );
  }
  return options.context > 0 ? options.context
                             : std::min(kDefaultContext, config.max_position_embeddings);
}

model::Replay resolve_replay(const EngineOptions& options, const ModelConfig& config) {
  using Mode = model::Replay::Mode;
  if (options.replay == "off") return {};
  const int64_t least = config.attention.sliding_window + cache::kRollbackTokens;
  const int64_t keep = options.replay_keep == 0 ? least : options.replay_keep;
  if (keep < least) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "replay_keep is {}, at least {} rows are needed (window and rollback)", keep, least
        )
    );
  }
  return {options.replay == "mask" ? Mode::kMask : Mode::kCompact, keep};
}

}  // namespace di::engine
