// EngineRun: an open engine for a command, with what the user wants to see of it: progress,
// statistics, a trace.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/engine_flags.h"
#include "engine/engine.h"

namespace di::cli {

/// Flags of a command that runs an engine. Lives as long as its command.
struct EngineRunFlags {
  EngineFlags engine;
  double stats_seconds = -1;  ///< below 0: no statistics
  std::string trace;          ///< file; empty: none
  int64_t trace_steps = 64;

  /// Adds the flags of these engine options and --stats, --trace, --trace-steps.
  void add(CLI::App& command, const std::vector<std::string>& options);
};

/// Thread: one at a time.
class EngineRun {
 public:
  /// Opens the engine with a progress bar on a terminal, and watches for Ctrl-C from then on.
  /// Throws what Engine::open() throws.
  EngineRun(const EngineRunFlags& flags, const engine::EngineOptions& options);
  /// Prints the last statistics.
  ~EngineRun();
  EngineRun(const EngineRun&) = delete;

  engine::Engine& engine() { return *engine_; }

  /// Engine::step(), and statistics when they are due.
  std::vector<engine::Output> step();

  /// Prints statistics when they are due; for who steps the engine in another way.
  void tell_stats();

 private:
  using Clock = std::chrono::steady_clock;

  std::unique_ptr<engine::Engine> engine_;
  bool verbose_;
  double stats_seconds_;
  Clock::time_point last_stats_;
};

}  // namespace di::cli
