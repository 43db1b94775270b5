#include "bench/host_bench.h"

#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/scripted_device.h"

namespace di::bench {
namespace {

constexpr int64_t kPromptTokens = 8;

std::unique_ptr<engine::Engine> open_scripted(const HostBenchOptions& options) {
  engine::EngineOptions engine_options;
  engine_options.model = options.model;
  engine_options.threads = 1;
  engine_options.context = kPromptTokens + options.num_steps + 1;
  engine_options.max_num_seqs = options.num_seqs;
  engine_options.max_num_batched_tokens = options.num_seqs * kPromptTokens;
  engine_options.check_integrity = false;
  return engine::Engine::open(engine_options, {}, [](const engine::DeviceParts& parts) {
    const int64_t vocab = parts.model.config.vocab_size;
    return std::make_unique<engine::ScriptedDevice>(
        [vocab](const engine::StepInputs& step, engine::SequenceResult& result) {
          result.draws = {{.token = static_cast<int32_t>((step.step * 7 + result.id) % vocab)}};
        }
    );
  });
}

Json microseconds(const engine::Distribution& seconds) {
  return Json::Object{
      {"p50", Json(seconds.p50 * 1e6)},
      {"p90", Json(seconds.p90 * 1e6)},
      {"p99", Json(seconds.p99 * 1e6)}};
}

}  // namespace

void bench_host(const HostBenchOptions& options, const Emit& emit) {
  const auto engine = open_scripted(options);
  for (int64_t i = 0; i < options.num_seqs; ++i) {
    engine::Request request;
    request.id = fmt::format("{}", i);
    request.prompt_token_ids.assign(kPromptTokens, 5);
    request.detokenize = options.detokenize;
    request.sampling.max_tokens = options.num_steps;
    request.sampling.ignore_eos = true;
    if (const auto refusal = engine->add(std::move(request)))
      throw Error(refusal->code, refusal->message);
  }
  for (int64_t step = 0; step + 8 < options.num_steps; ++step)
    engine->step();
  const engine::Stats stats = engine->stats();
  emit(Json::Object{
      {"bench", Json("host")},
      {"num_seqs", Json(options.num_seqs)},
      {"running", Json(stats.num_running)},
      {"detokenize", Json(options.detokenize)},
      {"steps", Json(stats.window_steps)},
      {"plan_us", microseconds(*stats.plan_seconds)},
      {"apply_us", microseconds(*stats.apply_seconds)},
      {"plan_apply_us_p50", Json((stats.plan_seconds->p50 + stats.apply_seconds->p50) * 1e6)}});
}

}  // namespace di::bench
