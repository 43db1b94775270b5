#include "engine/options.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "cache/layout.h"
#include "engine/option_table.h"

namespace di::engine {
namespace {

constexpr int64_t kDefaultContext = 8192;

/// One id or "first..last" of a list.
std::pair<int64_t, int64_t> parse_id_range(std::string_view text) {
  const auto number = [](std::string_view digits) -> int64_t {
    int64_t value = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() ? value : -1;
  };
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return {number(text), number(text)};
  return {number(text.substr(0, dots)), number(text.substr(dots + 2))};
}

}  // namespace

void validate(const EngineOptions& options) {
  EngineOptions checked;
  for (const OptionInfo& option : option_table())
    option.set(checked, option.get(options));
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

int64_t most_drafts(const ModelConfig& config) {
  return std::min(config.draft.dspark_block_size, cache::kMostDrafts);
}

sched::DraftControlOptions resolve_drafts(const EngineOptions& options, const ModelConfig& config) {
  if (options.drafts == "off") return {};
  if (!config.draft.enabled()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "drafts is {}, but the model has no drafter (num_nextn_predict_layers is 0); leave it "
            "off",
            options.drafts
        )
    );
  }
  const int64_t most = most_drafts(config);
  if (options.drafts == "adaptive") return {sched::DraftMode::kAdaptive, most};
  const int64_t count = options.drafts.front() - '0';
  if (count <= most) return {sched::DraftMode::kStatic, count};
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("drafts is {}, the model drafts {} tokens at once", options.drafts, most)
  );
}

sampling::VerificationMode resolve_verification(const EngineOptions& options) {
  using Mode = sampling::VerificationMode;
  if (options.verification == "exact_seed") return Mode::kExactSeed;
  return options.verification == "block" ? Mode::kBlock : Mode::kAuto;
}

std::vector<int32_t> resolve_banned_tokens(
    const EngineOptions& options, const ModelConfig& config
) {
  std::vector<int32_t> ids;
  std::string_view rest = options.banned_tokens;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view entry = rest.substr(0, comma);
    const auto [first, last] = parse_id_range(entry);
    if (first < 0 || first > last || last >= config.vocab_size) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "banned_tokens holds \"{}\"; it must be a list such as 0..3,7 of ids from 0 to {}",
              entry,
              config.vocab_size - 1
          )
      );
    }
    for (int64_t id = first; id <= last; ++id)
      ids.push_back(static_cast<int32_t>(id));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
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
