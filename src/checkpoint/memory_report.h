// How many tensors and bytes each part of a model has on disk, without opening any file.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/inventory.h"
#include "config/model_config.h"

namespace di::checkpoint {

/// The sum over one kind of tensors.
struct KindTotal {
  TensorKind kind;
  int64_t tensors = 0;
  int64_t bytes = 0;
};

/// One row a kind, in the order of the enumeration; kinds without tensors too.
std::vector<KindTotal> totals_by_kind(const std::vector<ExpectedTensor>& tensors);

}  // namespace di::checkpoint
