// The flags of sampling parameters.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/json.h"
#include "sampling/params.h"

namespace di::cli {

/// Which flags a command has, and what was given. Lives as long as its command.
class SamplingFlags {
 public:
  /// Adds the flags of the parameters that one answer has, and with `all` those of several choices,
  /// of reports and of forced tokens. The seed is an engine option, and so has its flag there.
  void add(CLI::App& command, bool all);

  /// The parameters as JSON: flags over the generation_config.json of `model_folder` (empty: none)
  /// over the program's own defaults. Throws Error for a generation_config.json that cannot be
  /// read.
  Json json(const std::string& model_folder) const;

  /// json() as parameters; their ranges are judged by who uses them. Throws
  /// Error{kInvalidArgument} naming a parameter whose value is of another kind.
  sampling::SamplingParams params(const std::string& model_folder) const;

 private:
  std::map<std::string, std::vector<std::string>> texts_;  // by parameter; never move
  std::map<std::string, bool> switches_;
};

}  // namespace di::cli
