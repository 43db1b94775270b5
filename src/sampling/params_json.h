// SamplingParams as JSON: what records, Python and the server exchange.
#pragma once

#include "base/json.h"
#include "sampling/params.h"

namespace di::sampling {

/// An object with one member for each field that differs from its default, under the field's name.
/// logit_bias is an object from token id to bias.
Json to_json(const SamplingParams& params);

/// The parameters of such an object. Missing and null members mean the default. Throws
/// Error{kInvalidArgument} for a member that is no field, naming it, and for a value of another
/// kind, naming the field, what was expected and what was found. Ranges are validate()'s.
SamplingParams params_from_json(const Json& json);

}  // namespace di::sampling
