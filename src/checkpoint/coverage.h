// Do the tensors of a checkpoint match its configuration, in both directions?
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/inventory.h"
#include "checkpoint/safetensors.h"

namespace di::checkpoint {

/// Tensors by name without the prefix "model.". The keys point into the values' names.
using TensorsByName = std::unordered_map<std::string_view, const TensorRef*>;

/// Throws Error{kInvalidFile} when a tensor is missing, not expected, or of another type or shape.
/// The message starts with `where`, counts each kind of difference and shows the first few.
void check_coverage(
    const std::vector<ExpectedTensor>& expected, const TensorsByName& found, std::string_view where
);

}  // namespace di::checkpoint
