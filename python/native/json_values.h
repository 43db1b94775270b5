// Python values as JSON values and back: how structures cross the border without a class of their
// own on it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <nanobind/nanobind.h>

#include "base/json.h"

namespace di::python {

namespace nb = nanobind;

/// None, bool, whole numbers of 64 bits, floats, str, sequences and dicts with str keys; numbers of
/// numpy too. Throws Error{kInvalidArgument} naming `where` and the type of anything else.
Json to_json(nb::handle value, std::string_view where);

/// The Python value of a JSON value.
nb::object from_json(const Json& json);

/// Token ids from any iterable of whole numbers. Throws Error{kInvalidArgument} naming the first
/// item that is none of 32 bits.
std::vector<int32_t> to_token_ids(nb::handle ids);

}  // namespace di::python
