#include "bench/drafts_bench.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "bench/draft_prompts.h"
#include "bench/draft_round.h"
#include "engine/engine.h"
#include "engine/record.h"

namespace di::bench {
namespace {

/// Rounds that do not count: a device runs a size the first time that it comes, and records it the
/// second.
constexpr int64_t kWarmRounds = 2;

/// An engine, and what it did with one kind of prompts.
struct Mode {
  std::string drafts;
  std::unique_ptr<engine::Engine> engine;
  std::vector<DraftRound> rounds = {};
};

double median(const std::vector<double>& values) {
  return engine::distribution_of(values)->p50;
}

/// What the costs of steps let expect of drafts: `tokens` a step for the seconds of its rows and of
/// drafting, over a token for those of a step without drafts. `verified`: drafts of a sequence.
double expected_gain(
    const sched::DraftCosts& costs,
    int64_t sequences,
    double keys_per_row,
    double verified,
    double tokens
) {
  const auto seconds = [&](int64_t rows) {
    const auto pairs = static_cast<int64_t>(keys_per_row * static_cast<double>(rows));
    return costs.expected({.rows = rows, .key_pairs = pairs});
  };
  const double rows = static_cast<double>(sequences) * (1 + verified);
  const auto below = static_cast<int64_t>(rows);
  const double share = rows - static_cast<double>(below);
  const double step = (1 - share) * seconds(below) + share * seconds(below + 1);
  const double drafting = verified > 0 ? costs.drafting(sequences) : 0;
  return tokens * seconds(sequences) / (step + drafting);
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
      for (std::size_t i = 0; i < modes_.size(); ++i) {
        // There and back: a machine that becomes slower does so to all modes alike.
        Mode& mode = modes_[round % 2 == 0 ? i : modes_.size() - 1 - i];
        DraftRound done = answer_prompts(*mode.engine, options_, prompts, sequences);
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
    for (const DraftRound& round : mode.rounds) {
      if (round.texts == modes_.front().rounds.front().texts) continue;
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("drafts {}: a text is not that of drafts {}", mode.drafts, modes_[0].drafts)
      );
    }
  }

  /// A number of each round over that of the mode off, ascending.
  std::vector<double> over_off(const Mode& mode, double DraftRound::*number) const {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < mode.rounds.size(); ++i)
      ratios.push_back(mode.rounds[i].*number / modes_.front().rounds[i].*number);
    std::sort(ratios.begin(), ratios.end());
    return ratios;
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
    for (const DraftRound& round : mode.rounds)
      rates.push_back(round.tokens_per_s);
    const std::vector<double> gains = over_off(mode, &DraftRound::tokens_per_s);
    const double found = median(gains);
    const double tokens = stats.tokens_per_sequence_step.value_or(1);
    Json expected;
    if (const auto table = costs(); table && mode.drafts != "adaptive") {
      const double keys = mode.rounds.back().keys_per_row;
      const double verified = stats.drafts_per_sequence.value_or(0);
      expected = expected_gain(sched::DraftCosts(*table), sequences, keys, verified, tokens);
    }
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
        {"tokens_per_s", median(rates)},
        {"gain", found},
        {"gain_quartiles",
         Json::Array{engine::percentile(gains, 25), engine::percentile(gains, 75)}},
        {"cpu_cost", median(over_off(mode, &DraftRound::cpu_s_per_token))},
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
