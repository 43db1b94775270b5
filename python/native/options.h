// Engine options by name.
#pragma once

#include "base/json.h"
#include "engine/options.h"

namespace di::python {

/// The options that `values`, an object, sets; the others keep their defaults. Throws
/// Error{kInvalidArgument} naming a member that is no option or has the wrong type.
engine::EngineOptions options_from_json(const Json& values);

/// All options, an object in the order of engine/options.h.
Json options_json(const engine::EngineOptions& options);

}  // namespace di::python
