#include "cli/engine_run.h"

#include <fmt/format.h>

#include "cache/layout.h"
#include "cli/interrupt.h"
#include "cli/progress.h"

namespace di::cli {
namespace {

std::unique_ptr<engine::Engine> open(const engine::EngineOptions& options) {
  ProgressBar bar("Loading");
  return engine::Engine::open(options, [&](int64_t done, int64_t total) {
    bar.update(done, total);
  });
}

void print_stats(const engine::Engine& engine) {
  fmt::print(stderr, "{}\n", engine::stats_line(engine.stats()));
}

void print_memory(const engine::Engine& engine) {
  fmt::print(
      stderr,
      "memory: {} planned: {}; {} blocks of {} tokens\n",
      model::human_bytes(engine.memory_plan().total()),
      model::plan_line(engine.memory_plan()),
      engine.num_blocks(),
      cache::kBlockTokens
  );
}

}  // namespace

void EngineRunFlags::add(CLI::App& command, const std::vector<std::string>& options) {
  engine.add(command, options);
  constexpr const char* kGroup = "Engine";
  command
      .add_option(
          "--stats",
          stats_seconds,
          "Print a line of statistics on standard error this often, and at the end; 0: at the end "
          "alone (docs/metrics.md)"
      )
      ->type_name("SECONDS")
      ->check(CLI::NonNegativeNumber)
      ->group(kGroup);
  command
      .add_option("--trace", trace, "Record the first steps into this file, for ui.perfetto.dev")
      ->type_name("FILE")
      ->group(kGroup);
  command.add_option("--trace-steps", trace_steps, "How many steps --trace records")
      ->check(CLI::Range(int64_t{1}, int64_t{100000}))
      ->capture_default_str()
      ->group(kGroup);
}

EngineRun::EngineRun(const EngineRunFlags& flags, const engine::EngineOptions& options)
    : engine_(open(options)), stats_seconds_(flags.stats_seconds), last_stats_(Clock::now()) {
  if (flags.engine.verbose()) print_memory(*engine_);
  if (!flags.trace.empty()) engine_->trace(flags.trace, flags.trace_steps);
  watch_interrupts();
}

EngineRun::~EngineRun() {
  if (stats_seconds_ >= 0) print_stats(*engine_);
}

std::vector<engine::Output> EngineRun::step() {
  std::vector<engine::Output> news = engine_->step();
  tell_stats();
  return news;
}

void EngineRun::tell_stats() {
  if (stats_seconds_ <= 0) return;
  const Clock::time_point now = Clock::now();
  if (now - last_stats_ < std::chrono::duration<double>(stats_seconds_)) return;
  last_stats_ = now;
  print_stats(*engine_);
}

}  // namespace di::cli
