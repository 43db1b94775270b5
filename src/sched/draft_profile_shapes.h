// Which steps a profile at the start measures.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/draft_costs.h"

namespace di::sched {

/// A step to be timed: `sequences` of `rows_each` rows.
struct ProfileShape {
  int64_t sequences = 1;
  int64_t rows_each = 1;
  bool drafting = false;  ///< drafts are made for every sequence after the draws

  int64_t rows() const { return sequences * rows_each; }
};

/// How often each shape is run; the first run warms up and is not counted.
inline constexpr int64_t kProfileRepeats = 4;

/// What bounds a profile.
struct ProfileLimits {
  int64_t max_num_seqs = 1;
  int64_t num_drafts = 0;
  int64_t max_num_batched_tokens = 1;
};

/// The shapes in the order in which they are to be run, so that a profile that ends early still
/// spans what matters: one sequence without and with all drafts, the full batch, then between them
/// from coarse to fine. No shape twice, none beyond the limits.
std::vector<ProfileShape> profile_shapes(const ProfileLimits& limits);

/// Whether a shape may be run, by what is known so far, in the seconds that are left. Shapes of
/// which nothing is known are taken to cost in proportion to their rows.
bool fits_profile(const ProfileShape& shape, const DraftCosts& costs, double seconds_left);

}  // namespace di::sched
