#include "bench/drafts_bench.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "bench/draft_prompts.h"
#include "engine/engine.h"
#include "engine/record.h"
#include "text/chat_encoding.h"

namespace di::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Rounds that do not count: a device runs a size the first time that it comes, and records it the
/// second.
constexpr int64_t kWarmRounds = 2;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Token ids by request.
using Texts = std::map<std::string, std::vector<int32_t>>;

/// What one mode did in one round.
struct Round {
  double tokens_per_s = 0;
  int64_t output_tokens = 0;
  double keys_per_row = 0;  ///< tokens that a decode row sees, mean
  Texts texts = {};
  engine::Stats stats = {};
};

/// An engine, and what it did with one kind of prompts.
struct Mode {
  std::string drafts;
  std::unique_ptr<engine::Engine> engine;
  std::vector<Round> rounds = {};
};

std::vector<int32_t> prompt_of(const engine::Engine& engine, const char* content) {
  text::Conversation conversation;
  conversation.thinking = false;
  text::Message& message = conversation.messages.emplace_back();
  message.role = text::Role::kUser;
  message.content = content;
  return text::encode(text::render(conversation, text::ChatVersion::kV41), engine.tokenizer());
}

/// Answers the prompts of a kind, `sequences` at once: who ends is followed by the next one, and
/// only what comes while all run is measured.
class Run {
 public:
  Run(engine::Engine& engine,
      const DraftsBenchOptions& options,
      const DraftPrompts& prompts,
      int64_t sequences)
      : engine_(engine), options_(options), prompts_(prompts), sequences_(sequences) {}

  Round answer() {
    const int64_t count = std::ssize(prompts_.prompts) * (sequences_ == 1 ? 1 : 2 * sequences_);
    engine_.restart_stats();
    int64_t added = 0;
    while (added < count || engine_.has_work()) {
      while (running_ < sequences_ && added < count)
        add(added++);
      const bool full = num_begun_ == sequences_ && running_ == sequences_;
      const Clock::time_point start = Clock::now();
      const int64_t tokens = take(engine_.step());
      if (!full) continue;
      seconds_ += seconds_since(start);
      tokens_ += tokens;
    }
    round_.keys_per_row = static_cast<double>(keys_) / static_cast<double>(round_.output_tokens);
    round_.stats = engine_.stats();
    round_.tokens_per_s = static_cast<double>(tokens_) / seconds_;
    return std::move(round_);
  }

 private:
  void add(int64_t number) {
    const auto at = static_cast<std::size_t>(number) % prompts_.prompts.size();
    engine::Request request;
    request.id = fmt::format("{} {}", prompts_.kind, number);
    request.prompt_token_ids = prompt_of(engine_, prompts_.prompts[at]);
    prompt_tokens_[request.id] = std::ssize(request.prompt_token_ids);
    request.sampling.temperature = options_.temperature;
    request.sampling.seed = static_cast<uint64_t>(number);
    request.sampling.max_tokens = options_.max_tokens;
    request.detokenize = false;
    if (const auto refusal = engine_.add(std::move(request)))
      throw Error(ErrorCode::kInvalidArgument, refusal->message);
    ++running_;
  }

  /// Tokens of one step's news.
  int64_t take(std::vector<engine::Output> outputs) {
    int64_t count = 0;
    for (const engine::Output& output : outputs) {
      std::vector<int32_t>& text = round_.texts[output.request_id];
      for (const engine::ChoiceOutput& choice : output.choices) {
        if (text.empty() && !choice.tokens.empty()) ++num_begun_;
        for (const engine::TokenOutput& token : choice.tokens) {
          keys_ += prompt_tokens_.at(output.request_id) + std::ssize(text);
          text.push_back(token.token);
        }
        count += std::ssize(choice.tokens);
      }
      if (!output.finished) continue;
      --running_;
      --num_begun_;
    }
    round_.output_tokens += count;
    return count;
  }

  engine::Engine& engine_;
  const DraftsBenchOptions& options_;
  const DraftPrompts& prompts_;
  int64_t sequences_;
  Round round_;
  int64_t running_ = 0;
  int64_t num_begun_ = 0;  // of these, with a first token
  double seconds_ = 0;     // while all had theirs
  int64_t tokens_ = 0;     // that came meanwhile
  int64_t keys_ = 0;       // that the rows saw which drew the tokens
  std::map<std::string, int64_t> prompt_tokens_;
};

double median(std::vector<double> values) {
  return engine::distribution_of(std::move(values))->p50;
}

/// The gain of `drafts` for each of `sequences`, by what steps cost on texts as long as the
/// round's.
Json expected_gain(
    const std::optional<sched::CostTable>& table,
    int64_t sequences,
    const std::string& drafts,
    double tokens_per_step,
    double keys_per_row
) {
  if (!table || drafts == "adaptive") return {};
  const int64_t count = drafts == "off" ? 0 : drafts.front() - '0';
  const auto costs = sched::DraftCosts(*table).costs_for(
      {.rows = sequences, .drafts = sequences * count, .keys_per_row = keys_per_row}
  );
  const double drafting = count == 0 ? 0 : costs->drafting(sequences);
  const double seconds = costs->measured.seconds(sequences * (1 + count)) + drafting;
  return tokens_per_step * costs->measured.seconds(sequences) / seconds;
}

class Bench {
 public:
  explicit Bench(const DraftsBenchOptions& options) : options_(options) {
    for (const std::string& drafts : options.modes) {
      engine::EngineOptions own = options.engine;
      own.drafts = drafts;
      modes_.push_back({drafts, engine::Engine::open(own)});
    }
  }

  void run(const DraftPrompts& prompts, int64_t sequences, const Emit& emit) {
    for (Mode& mode : modes_)
      mode.rounds.clear();
    for (int64_t round = -kWarmRounds; round < options_.rounds; ++round) {
      for (Mode& mode : modes_) {
        Round done = Run(*mode.engine, options_, prompts, sequences).answer();
        if (round >= 0) mode.rounds.push_back(std::move(done));
      }
    }
    for (const Mode& mode : modes_) {
      check_texts(mode);
      emit(line_of(mode, prompts.kind, sequences));
    }
  }

  void emit_costs(const char* when, const Emit& emit) const {
    const auto table = costs();
    if (!table) return;
    Json::Array points;
    for (const sched::CostTable::Point& point : table->points)
      points.push_back(Json::Object{{"rows", point.rows}, {"us", point.seconds * 1e6}});
    emit(Json::Object{
        {"name", "drafts_costs"},
        {"when", when},
        {"points", std::move(points)},
        {"drafting_base_us", table->drafting_base * 1e6},
        {"drafting_each_us", table->drafting_each * 1e6}});
  }

 private:
  void check_texts(const Mode& mode) const {
    if (options_.engine.verification == "block" && options_.temperature > 0) return;
    for (const Round& round : mode.rounds) {
      if (round.texts == modes_.front().rounds.front().texts) continue;
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("drafts {}: a text is not that of drafts {}", mode.drafts, modes_[0].drafts)
      );
    }
  }

  double gain(const Mode& mode) const {
    std::vector<double> gains;
    for (std::size_t i = 0; i < mode.rounds.size(); ++i)
      gains.push_back(mode.rounds[i].tokens_per_s / modes_.front().rounds[i].tokens_per_s);
    return median(std::move(gains));
  }

  std::optional<sched::CostTable> costs() const {
    for (const Mode& mode : modes_)
      if (auto table = mode.engine->draft_costs()) return table;
    return std::nullopt;
  }

  Json line_of(const Mode& mode, const char* kind, int64_t sequences) const {
    const engine::Engine& engine = *mode.engine;
    const engine::Stats& stats = mode.rounds.back().stats;
    std::vector<double> rates;
    for (const Round& round : mode.rounds)
      rates.push_back(round.tokens_per_s);
    const double found = gain(mode);
    const double tokens = stats.tokens_per_sequence_step.value_or(1);
    const double keys = mode.rounds.back().keys_per_row;
    const Json expected = expected_gain(costs(), sequences, mode.drafts, tokens, keys);
    Json::Array by_position;
    for (const double share : stats.draft_acceptance_by_position)
      by_position.emplace_back(share);
    return Json::Object{
        {"name", "drafts"},
        {"model", engine::model_name(engine.model_folder())},
        {"backend", engine.ops().name},
        {"isa", engine.ops().isa},
        {"threads", engine.options().threads},
        {"kind", kind},
        {"temperature", options_.temperature},
        {"verification", options_.engine.verification},
        {"sequences", sequences},
        {"drafts", mode.drafts},
        {"output_tokens", mode.rounds.back().output_tokens},
        {"tokens_per_s", median(std::move(rates))},
        {"gain", found},
        {"acceptance", json_of(stats.draft_acceptance)},
        {"acceptance_by_position", std::move(by_position)},
        {"tokens_per_sequence_step", tokens},
        {"verified_per_sequence_step", json_of(stats.drafts_per_sequence)},
        {"confidence_error", json_of(stats.draft_confidence_error)},
        {"cost_error", json_of(stats.draft_cost_error)},
        {"advantage", json_of(stats.draft_advantage)},
        {"pauses", stats.num_draft_pauses},
        {"control_steps", stats.total_control_steps},
        {"expected_gain", expected},
        {"gain_share", expected.is_null() ? Json() : Json(found / expected.as_number())}};
  }

  static Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

  const DraftsBenchOptions& options_;
  std::vector<Mode> modes_;
};

}  // namespace

void bench_drafts(const DraftsBenchOptions& options, const Emit& emit) {
  if (options.modes.empty() || options.modes.front() != "off")
    throw Error(
        ErrorCode::kInvalidArgument, "the first mode must be off: others are compared with it"
    );
  Bench bench(options);
  bench.emit_costs("at the start", emit);
  for (const int64_t sequences : options.sequences) {
    for (const DraftPrompts& prompts : draft_prompts())
      bench.run(prompts, sequences, emit);
  }
  bench.emit_costs("at the end", emit);
}

}  // namespace di::bench
