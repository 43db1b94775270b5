// The flags of an engine, made from the table of options, and what they add up to with a config
// file and the environment.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "engine/option_sources.h"

namespace di::cli {

/// Options that mean something to a lone sequence without an engine: chat, eval, inspect.
extern const std::vector<std::string> kLoneOptions;
/// Those of an engine that serves one request.
extern const std::vector<std::string> kOneRequestOptions;
/// All of them.
std::vector<std::string> all_options();

/// Which flags a command has, and what was given. Lives as long as its command.
class EngineFlags {
 public:
  /// Adds --config, --verbose and the flags of these options.
  void add(CLI::App& command, const std::vector<std::string>& options);

  /// Merges all sources over `defaults`, once the command line is parsed, and tells on standard
  /// error what is not seen on the command line: options that a file or the environment changed
  /// (all with --verbose), and variables without effect. Throws what merge_options() throws.
  engine::MergedOptions merge(const engine::EngineOptions& defaults = {}) const;

  /// As merge(), for who only wants the values.
  engine::EngineOptions options() const { return merge().options; }

  /// Whether --verbose was given.
  bool verbose() const { return verbose_; }

 private:
  std::map<std::string, std::string> texts_;                   // by option; never move
  std::vector<std::pair<std::string, CLI::Option*>> options_;  // those that the command has
  std::string config_;
  bool verbose_ = false;
};

}  // namespace di::cli
