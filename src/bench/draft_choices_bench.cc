#include "bench/draft_choices_bench.h"

#include <algorithm>

#include "bench/device_steps.h"
#include "bench/draft_choices.h"
#include "bench/synthetic_model.h"
#include "config/known_models.h"
#include "engine/stats.h"

namespace di::bench {
namespace {

constexpr int64_t kWarmUp = 6;

double median(const std::vector<double>& values) {
  return engine::distribution_of(values)->p50;
}

/// One kind of step, for all sequences.
class Kinds {
 public:
  Kinds(
      const DraftChoicesOptions& options,
      const model::Model& model,
      const ops::OpTable& ops,
      ThreadPool& pool,
      int64_t sequences,
      const Emit& emit
  )
      : options_(options),
        layers_(model.config.num_hidden_layers),
        most_(model.config.draft.dspark_block_size),
        sequences_(sequences),
        backend_(ops.name),
        emit_(emit),
        steps_(
            {.sequences = sequences,
             .context = options.context,
             .chunk = std::min<int64_t>(1024, options.context),
             .num_steps = (most_ + 2) * (options.num_steps + kWarmUp),
             .num_drafts = most_},
            model,
            ops,
            pool
        ) {}

  /// Steps that draft come first: one that does not leaves no draft context behind.
  ChoiceCosts measure() {
    steps_.prefill();
    std::vector<double> with_drafting;
    for (int64_t drafts = 0; drafts <= most_; ++drafts)
      with_drafting.push_back(seconds_of({.verified = drafts, .drafting = true}));
    const double plain = seconds_of({});
    ChoiceCosts costs{.rows = {}, .drafting = std::max(0.0, with_drafting.front() - plain)};
    for (const double seconds : with_drafting)
      costs.rows.push_back(seconds - costs.drafting);
    return costs;
  }

 private:
  double seconds_of(const StepDrafts& drafts) {
    steps_.decode(kWarmUp, drafts);
    const StepTimes times = steps_.decode(options_.num_steps, drafts);
    const double seconds = median(times.seconds);
    emit_(Json::Object{
        {"name", "draft_step"},
        {"backend", backend_},
        {"layers", layers_},
        {"context", options_.context},
        {"sequences", sequences_},
        {"drafts", drafts.verified},
        {"drafting", drafts.drafting},
        {"rows", sequences_ * (1 + drafts.verified)},
        {"us", seconds * 1e6},
        {"device_us", median(times.device) * 1e6}});
    return seconds;
  }

  const DraftChoicesOptions& options_;
  int64_t layers_;
  int64_t most_;
  int64_t sequences_;
  std::string backend_;
  const Emit& emit_;
  DeviceSteps steps_;
};

void emit_costs(
    const DraftChoicesOptions& options,
    int64_t sequences,
    int64_t layers,
    const ChoiceCosts& costs,
    const Emit& emit
) {
  Json::Array rows;
  for (const double seconds : costs.rows)
    rows.emplace_back(seconds * 1e6);
  emit(Json::Object{
      {"name", "draft_costs"},
      {"sequences", sequences},
      {"layers", layers},
      {"scaled_from", Json::Array{options.few_layers, options.many_layers}},
      {"counted_once", "head, draws, drafting"},
      {"rows_us", std::move(rows)},
      {"drafting_us", costs.drafting * 1e6}});
}

void emit_choices(
    int64_t sequences, const AcceptanceLaw& law, const ChoiceCosts& costs, const Emit& emit
) {
  const std::vector<ChoiceResult> results = evaluate_choices(sequences, costs, law);
  const ChoiceResult& off = results.front();
  const ChoiceResult& all = results[costs.rows.size() - 1];
  for (const ChoiceResult& result : results) {
    const double rate = result.tokens_per_second(sequences);
    emit(Json::Object{
        {"name", "draft_choices"},
        {"sequences", sequences},
        {"mean", law.mean},
        {"concentration", law.concentration},
        {"steps", law.steps},
        {"seed", static_cast<int64_t>(law.seed)},
        {"policy", result.policy},
        {"verified", result.verified},
        {"tokens", result.tokens},
        {"us", result.seconds * 1e6},
        {"tokens_per_s", rate},
        {"over_off", rate / off.tokens_per_second(sequences)},
        {"over_static", rate / all.tokens_per_second(sequences)},
        {"fewer_verified", 1 - result.verified / all.verified}});
  }
}

}  // namespace

void bench_draft_choices(
    const DraftChoicesOptions& options, const ops::OpTable& ops, ThreadPool& pool, const Emit& emit
) {
  SyntheticModel synthetic = synthetic_model(
      "v4.1-flash",
      ops,
      pool,
      {.num_layers = options.many_layers,
       .with_head = true,
       .with_drafts = true,
       .num_experts = options.num_experts}
  );
  const auto measure = [&] {
    std::vector<ChoiceCosts> costs;
    for (const int64_t count : options.sequences)
      costs.push_back(Kinds(options, synthetic.model, ops, pool, count, emit).measure());
    return costs;
  };
  const std::vector<ChoiceCosts> many = measure();
  shorten(synthetic, options.few_layers);
  const std::vector<ChoiceCosts> few = measure();

  const int64_t layers = v41_flash_config().num_hidden_layers;
  for (std::size_t i = 0; i < options.sequences.size(); ++i) {
    const int64_t sequences = options.sequences[i];
    const ChoiceCosts costs =
        costs_of_layers(few[i], options.few_layers, many[i], options.many_layers, layers);
    emit_costs(options, sequences, layers, costs, emit);
    for (const double mean : options.means) {
      const AcceptanceLaw law{mean, options.concentration, options.random_steps, options.seed};
      emit_choices(sequences, law, costs, emit);
    }
  }
}

}  // namespace di::bench
