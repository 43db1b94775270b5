#include "bench/step_bench.h"

#include <algorithm>

#include "base/error.h"
#include "bench/device_steps.h"
#include "engine/stats.h"

namespace di::bench {
namespace {

Json line_of(
    const StepBenchOptions& options,
    const ops::OpTable& ops,
    const char* phase,
    int64_t sequences,
    const StepDrafts& drafts,
    int64_t num_rows,
    const StepTimes& times
) {
  const engine::Distribution seconds = *engine::distribution_of(times.seconds);
  const auto rows = static_cast<double>(num_rows);
  return Json::Object{
      {"name", "step"},
      {"backend", ops.name},
      {"model", options.label},
      {"phase", phase},
      {"context", options.context},
      {"sequences", sequences},
      {"drafts", drafts.verified},
      {"drafting", drafts.drafting},
      {"rows", rows},
      {"steps", static_cast<int64_t>(times.seconds.size())},
      {"us", seconds.p50 * 1e6},
      {"p99_us", seconds.p99 * 1e6},
      {"device_us", engine::distribution_of(times.device)->p50 * 1e6},
      {"rows_per_s", rows / seconds.p50}};
}

/// Those that draft come first: a step that does not leaves no draft context behind.
std::vector<StepDrafts> phases_of(const StepBenchOptions& options) {
  std::vector<StepDrafts> phases;
  for (const int64_t drafts : options.drafts)
    phases.push_back({.verified = drafts, .drafting = true});
  phases.emplace_back();
  return phases;
}

/// Drafts that a sequence makes at once.
int64_t num_drafts_of(const StepBenchOptions& options, const model::Model& model) {
  if (options.drafts.empty()) return 0;
  const int64_t most = model.weights.draft ? model.config.draft.dspark_block_size : 0;
  if (most == 0 || *std::max_element(options.drafts.begin(), options.drafts.end()) > most)
    throw Error(ErrorCode::kInvalidArgument, "the model cannot make so many drafts");
  return most;
}

}  // namespace

void bench_step(
    const StepBenchOptions& options,
    const model::Model& model,
    const ops::OpTable& ops,
    ThreadPool& pool,
    const Emit& emit
) {
  const std::vector<StepDrafts> phases = phases_of(options);
  for (const int64_t count : options.sequences) {
    DeviceSteps steps(
        {.sequences = count,
         .context = options.context,
         .chunk = options.chunk,
         .num_steps = 2 * options.num_steps * std::ssize(phases),
         .num_drafts = num_drafts_of(options, model)},
        model,
        ops,
        pool
    );
    const int64_t chunk = std::min(options.chunk, options.context);
    emit(line_of(options, ops, "prefill", count, {}, chunk, steps.prefill()));
    for (const StepDrafts& drafts : phases) {
      steps.decode(options.num_steps, drafts);
      const StepTimes times = steps.decode(options.num_steps, drafts);
      emit(line_of(options, ops, "decode", count, drafts, count * (1 + drafts.verified), times));
    }
  }
}

}  // namespace di::bench
