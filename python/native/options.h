// The options of an engine, from what Python gives and from the environment.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "engine/options.h"

namespace di::python {

/// What an engine is opened with.
struct ResolvedOptions {
  engine::EngineOptions options = {};
  std::vector<std::string> notes = {};  ///< variables of the environment without effect, and why
};

/// Defaults, overruled by the environment, overruled by `values`; `defaults` and `values` are
/// objects from option names to values. Throws Error{kInvalidArgument} naming what is wrong where,
/// also when no source names a model.
ResolvedOptions resolve_options(const Json& defaults, const Json& values);

/// All options, an object in the order of the table.
Json options_json(const engine::EngineOptions& options);

}  // namespace di::python
