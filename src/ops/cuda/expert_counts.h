// How evenly the rows of a step fell on the experts; for statistics.
#pragma once

#include <cstdint>

#include "ops/exec.h"
#include "ops/rows.h"
#include "tensor/view.h"

namespace di::ops::cuda {

/// busiest[l] = the most rows that any expert has in layer l, used[l] = the experts that have any.
/// Rows that no sequence owns, which
/// fill up a recorded step, are not counted, nor are ids outside of [0, experts).
struct ExpertCounts {
  View<int32_t, 1> busiest;    // [layers]
  View<int32_t, 1> used;       // [layers]
  View<const int32_t, 3> ids;  // [layers, rows, k]; a layer that computes fewer has them in front
  Rows rows;                   // of the layers before `border`
  Rows kept;                   // of those from it on; not used when there is none
  int64_t border = -1;         // −1: all layers compute the same rows
  int64_t experts = 0;
};

/// Throws Error{kUnsupported} beyond 1,024 experts.
void count_experts(Exec& exec, const ExpertCounts& op);

}  // namespace di::ops::cuda
