// Where the options of an engine come from: defaults, then a config file, then the environment,
// then the command line; each overrules those before it. They are merged once.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "engine/environment.h"
#include "engine/options.h"

namespace di::engine {

/// What there is to merge.
struct OptionSources {
  EngineOptions defaults = {};
  std::string config = {};  ///< path of a JSON object from option names to values; empty: none
  Environment environment = {};
  std::vector<std::pair<std::string, std::string>> arguments = {};  ///< option name and text
};

/// Which kind of source a value came from.
enum class OptionSource { kDefault, kFile, kEnvironment, kCommandLine };

/// Where one value came from.
struct OptionOrigin {
  OptionSource source = OptionSource::kDefault;
  std::string name = "default";  ///< or the file, variable or flag

  bool operator==(const OptionOrigin&) const = default;
};

/// Options with the origin of each.
struct MergedOptions {
  EngineOptions options = {};
  std::vector<OptionOrigin> origins = {};  ///< one a row of option_table()
  std::vector<std::string> notes = {};     ///< variables of the original that do nothing, and why
};

/// Merges. Throws Error{kInvalidArgument} that names the source of a value out of range, an unknown
/// key or variable (with a suggestion), and two variables that set the same option; and what
/// reading the file throws.
MergedOptions merge_options(const OptionSources& sources);

/// "options: threads=1 (--threads), chunk=7 (DEEPINFER_CHUNK)": the options that did not keep their
/// default, or all. Empty when there is nothing to tell.
std::string options_line(const MergedOptions& merged, bool all);

/// An object from each option's name to its value, source ("default", "file", "environment" or
/// "command line") and origin, in the order of the table.
Json options_json(const MergedOptions& merged);

}  // namespace di::engine
