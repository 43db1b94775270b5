// Measuring what steps cost before there is anything to serve: made-up sequences, run by the device
// itself, so that the first requests already meet sensible choices about drafts.
#pragma once

#include <memory>

#include "engine/runner.h"
#include "sampling/params.h"
#include "sched/draft_costs.h"
#include "sched/draft_profile_shapes.h"

namespace di::engine {

/// What the sequences of a profile may use: nobody else holds a slot or a block.
struct ProfileRoom {
  sched::ProfileLimits limits = {};
  int64_t num_blocks = 0;
  int64_t context = 0;
  int64_t vocab_size = 0;
};

/// Runs steps of several shapes for about `seconds`, fewer on a slow machine, and adds what they
/// took to `costs`. Leaves nothing behind that an admitted sequence would see. A step that fails
/// ends it: the first request will tell. Too small a room: nothing is measured.
void profile_costs(
    Runner& runner, const ProfileRoom& room, double seconds, sched::DraftCosts& costs
);

}  // namespace di::engine
