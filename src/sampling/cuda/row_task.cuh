// What a cluster is told of a row, and what its CTAs keep of it in shared memory.
#pragma once

#include "sampling/cuda/best.cuh"
#include "sampling/cuda/draw_args.cuh"
#include "sampling/cuda/near.cuh"

namespace di::sampling::cuda {

/// What a CTA adds up over its part.
struct PartSums {
  uint64_t all = 0;
  uint64_t above_floor = 0;
};

/// What is to be done for a row.
struct Task {
  int row = 0;              ///< of the logits and the results
  int32_t token = -1;       ///< given or forced
  int32_t forced = -1;      ///< of a row that judges a draft: the only one that can be drawn
  int64_t num_outputs = 0;  ///< before it
  double share = 0;         ///< by which it is drawn, if it is not given
  double inverse_temperature = 1;
  int32_t* place = nullptr;
  int64_t top = 0;
  bool reports_model = false;
  bool reports_processed = false;
};

/// Shared memory of a CTA; behind it lie the logits of its part and a bit for each.
struct alignas(16) Memory {
  RankingMemory ranking;
  SlotParams params;
  Ahead ahead;
  Task task;
  Mailbox<uint64_t, kCtas * kWarps> codes;  ///< best entries of each warp, of logits as they came
  Best warp_best[kWarps];
  Best best[kCtas];  ///< after the edits
  Mailbox<PartSums> sums;
  NearMemory near;
  double exp_sums[kCtas];
  double forced_logit;
};

/// What the cuts leave of a row.
struct Kept {
  uint64_t mass = 0;
  bool is_cut = false;
  uint64_t last_rank = ~uint64_t{0};  ///< of the last token that is left, if something is cut
  int32_t last_token = 0;

  __device__ bool holds(uint64_t rank, int32_t token) const {
    return !is_cut || !is_before(last_rank, last_token, rank, token);
  }
};

}  // namespace di::sampling::cuda
