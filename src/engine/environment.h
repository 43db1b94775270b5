// Variables of the environment: ours, one for each engine option, and those of the original engine.
// docs/environment.md shows both lists.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace di::engine {

/// Variables by name; all begin with DEEPINFER_.
using Environment = std::map<std::string, std::string>;

/// The DEEPINFER_ variables of this process. An empty one counts as unset. Nothing outside this
/// file reads the environment.
Environment read_environment();

/// The user's folder for what a program may compute again: deepinfer in XDG_CACHE_HOME, or in
/// .cache of HOME. Empty when neither is an absolute path. It need not exist.
std::string default_cache_folder();

/// A variable that the original engine read.
struct OriginalVariable {
  std::string name;
  std::string option;  ///< the option that it sets here, too; empty: none
  std::string reason;  ///< when it sets none: why there is nothing to set
};

/// All of them, in the order of the alphabet.
const std::vector<OriginalVariable>& original_variables();

}  // namespace di::engine
