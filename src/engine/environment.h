// Variables of the environment: ours, one for each engine option, and those of the original engine.
// docs/environment.md shows both lists.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace di::engine {

/// Variables by name; all begin with DEEPINFER_.
using Environment = std::map<std::string, std::string>;

/// The DEEPINFER_ variables of this process. An empty one counts as unset. Nothing else in the
/// program reads the environment.
Environment read_environment();

/// A variable that the original engine read.
struct OriginalVariable {
  std::string name;
  std::string option;  ///< the option that it sets here, too; empty: none
  std::string reason;  ///< when it sets none: why there is nothing to set
};

/// All of them, in the order of the alphabet.
const std::vector<OriginalVariable>& original_variables();

}  // namespace di::engine
