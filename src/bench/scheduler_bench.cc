// Policies on simulated traffic; see scheduler_bench.h.
#include "bench/scheduler_bench.h"

#include <vector>

#include "engine/stats.h"
#include "sched/traffic.h"

namespace di::bench {
namespace {

using sched::RequestTimes;
using sched::Scenario;
using sched::SimulationResult;

void set_percentiles(Json& line, const std::string& name, const std::vector<double>& values) {
  const auto times = engine::distribution_of(values).value_or(engine::Distribution{});
  line.set(name + "_p50", times.p50);
  line.set(name + "_p90", times.p90);
  line.set(name + "_p99", times.p99);
}

Json line_of(
    const Scenario& scenario,
    const char* policy,
    const sched::Group& group,
    const SimulationResult& result
) {
  std::vector<double> first_steps, end_steps, first_seconds, end_seconds, gaps;
  int64_t num_requests = 0;
  int64_t num_ended = 0;
  for (std::size_t i = 0; i < scenario.traffic.size(); ++i) {
    if (!group.contains(scenario.traffic[i])) continue;
    const RequestTimes& times = result.requests[i];
    ++num_requests;
    num_ended += times.end_steps > 0;
    if (times.end_steps == 0 || times.aborted) continue;
    first_steps.push_back(static_cast<double>(times.first_token_steps));
    end_steps.push_back(static_cast<double>(times.end_steps));
    first_seconds.push_back(times.first_token_seconds);
    end_seconds.push_back(times.end_seconds);
    gaps.push_back(times.longest_gap_seconds);
  }
  Json line = Json::Object{
      {"name", "scheduler"},
      {"traffic", scenario.name},
      {"policy", policy},
      {"group", group.name},
      {"requests", num_requests},
      {"ended", num_ended}};
  set_percentiles(line, "first_token_steps", first_steps);
  set_percentiles(line, "end_steps", end_steps);
  set_percentiles(line, "first_token_s", first_seconds);
  set_percentiles(line, "end_s", end_seconds);
  set_percentiles(line, "longest_gap_s", gaps);
  return line;
}

void emit_lines(
    const Scenario& scenario, const char* policy, const SimulationResult& result, const Emit& emit
) {
  Json all = line_of(scenario, policy, {"all", [](const auto&) { return true; }}, result);
  all.set("steps", result.num_steps);
  all.set("seconds", result.seconds);
  all.set("preemptions", result.num_preemptions);
  all.set("recomputed_tokens", result.num_recomputed_tokens);
  all.set("blocks_lost", result.num_blocks_lost);
  if (!result.plan_us.empty()) {
    set_percentiles(all, "plan_us", result.plan_us);
    set_percentiles(all, "retire_us", result.retire_us);
  }
  emit(all);
  for (const sched::Group& group : scenario.groups)
    emit(line_of(scenario, policy, group, result));
}

}  // namespace

void bench_scheduler(const SchedulerBenchOptions& options, const Emit& emit) {
  Scenario scenario = sched::make_scenario(options.traffic, options.seed);
  scenario.machine.lag = options.lag;
  if (options.num_blocks > 0) scenario.machine.num_blocks = options.num_blocks;
  if (options.max_step_ms >= 0) scenario.options.max_step_seconds = options.max_step_ms * 1e-3;
  emit_lines(
      scenario,
      "deepinfer",
      sched::simulate(scenario.traffic, scenario.options, scenario.machine),
      emit
  );
  emit_lines(
      scenario,
      "original",
      sched::simulate_original(scenario.traffic, scenario.original, scenario.machine),
      emit
  );
}

}  // namespace di::bench
