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

/// What became of a device's plan.
void print_memory_taken(const engine::Engine& engine) {
  if (engine.ops().memory().is_host()) return;
  const int64_t planned = engine.memory_plan().total();
  const int64_t taken = engine.memory_taken();
  fmt::print(
      stderr,
      "memory: {} taken of {} planned, {:.1f} %\n",
      model::human_bytes(taken),
      model::human_bytes(planned),
      100.0 * static_cast<double>(taken) / static_cast<double>(planned)
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
    : engine_(open(options)),
      verbose_(flags.engine.verbose()),
      stats_seconds_(flags.stats_seconds),
      last_stats_(Clock::now()) {
  if (verbose_) print_memory(*engine_);
  if (!flags.trace.empty()) engine_->trace(flags.trace, flags.trace_steps);
  watch_interrupts();
}

EngineRun::~EngineRun() {
  if (verbose_) print_memory_taken(*engine_);
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
