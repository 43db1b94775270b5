// The end of the experts: what a row's experts gave becomes one row.
#pragma once

#include "ops/exec.h"
#include "tensor/number_formats.h"
#include "tensor/view.h"

namespace di::ops::cuda {

/// What each pair of a row and an expert gave, in the order of lists (expert_lists.h).
struct ExpertParts {
  const bf16* parts;         ///< [positions, hidden]
  const int32_t* positions;  ///< [rows, k + 1]: of a row's slots in `parts`; -1: nowhere
  int64_t k;                 ///< routed experts of a row; its last slot is the shared expert's
};

/// y [rows, hidden] = the parts of each row added in fp32 in the order of slots, rounded to bf16.
/// `positions` were complete before the kernel before this began.
void combine_experts(Exec& exec, const View<bf16, 2>& y, const ExpertParts& parts);

}  // namespace di::ops::cuda
