// How many drafts of a block stay, and what is drawn behind them: the twin of verification.h, with
// the same sums in the same order.
#pragma once

#include "sampling/cuda/block.cuh"
#include "sampling/cuda/draft_record.h"
#include "sampling/cuda/random.cuh"
#include "sampling/cuda/ranked_list.cuh"
#include "sampling/cuda/verify.h"

namespace di::sampling::cuda {

/// ends_choice() of the slot's parameters.
__device__ inline bool ends_choice(const SlotParams& params, int32_t token) {
  if (token == params.eos && !params.ignore_eos) return true;
  for (int64_t i = 0; i < params.stops.count; ++i) {
    if (params.stops.ids[i] == token) return true;
  }
  return false;
}

/// What becomes of a block.
struct Verdict {
  int accepted;
  bool is_over;     ///< the last accepted draft ends the choice: nothing is drawn behind it
  int32_t token;    ///< behind the accepted ones; −1: it is drawn
  bool replaces;    ///< not of the candidates of the first draft that does not stay
  uint64_t others;  ///< what the target gives to all other tokens
  double share;     ///< by which the token is drawn
};

/// Shared memory of a verdict.
struct VerdictMemory {
  double
      drafted[kMostDrafts];    ///< of each draft: its probability by the drafter, 0 if it has none,
  double wanted[kMostDrafts];  ///< and by the target;
  double rests[kMostDrafts];   ///< and what is left of the target in place of it
  int num_judged;
  bool is_end;
  Verdict verdict;
};

/// A block in the hands of one CTA.
class BlockJudge {
 public:
  __device__ BlockJudge(
      const VerifyBlock& block, int num_drafts, const SlotParams& params, VerdictMemory& memory
  )
      : block_(block), num_drafts_(num_drafts), params_(params), memory_(memory) {}

  /// The verdict, in every thread.
  __device__ Verdict run() {
    if (warp() == 0) count_judged();
    for (int i = warp(); i < num_drafts_; i += kWarps)
      find_own(i);
    __syncthreads();
    for (int i = warp(); i < memory_.num_judged; i += kWarps) {
      const double rest = rest_of(i, weight_of(i)).all;
      if (lane() == 0) memory_.rests[i] = rest;
    }
    __syncthreads();
    if (warp() == 0) decide();
    __syncthreads();
    return memory_.verdict;
  }

 private:
  /// A candidate in the hands of one lane, as Candidate.
  struct Share {
    int32_t token = -1;
    double drafted = 0;
    uint64_t mass = 0;  ///< by the target
    double term = 0;    ///< of the remainder
  };
  static constexpr int kOwn = kDraftCandidates / 32;  ///< candidates of a lane

  /// As Remainder; each lane has the terms of its candidates.
  struct Rest {
    Share own[kOwn];
    uint64_t others_mass = 0;
    double others = 0;
    double all = 0;
  };

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  /// Drafts up to the first one behind which nothing can follow; a lane looks at one.
  __device__ void count_judged() {
    const bool is_draft = lane() < num_drafts_;
    const bool is_open = is_draft && block_.records[lane()].target_mass > 0;
    const bool is_end = is_draft && ends_choice(params_, block_.drafts[lane()]);
    const int open = __ffs(static_cast<int>(~__ballot_sync(kAllLanes, is_open))) - 1;
    const int ending = __ffs(static_cast<int>(__ballot_sync(kAllLanes, is_end)));
    if (lane() != 0) return;
    memory_.is_end = ending > 0 && ending <= open;
    memory_.num_judged = memory_.is_end ? ending : open;
  }

  __device__ Share share_of(const DraftRecord& record, int i) const {
    Share share;
    if (i >= record.count) return share;
    share.token = record.tokens[i];
    share.drafted = static_cast<double>(record.masses[i]) / static_cast<double>(record.mass);
    const bool is_cut =
        is_before(record.last_rank, record.last_token, record.target_ranks[i], share.token);
    share.mass = is_cut ? 0 : record.target_masses[i];
    return share;
  }

  __device__ void find_own(int draft) {
    const DraftRecord& record = block_.records[draft];
    const int32_t token = block_.drafts[draft];
    if (lane() == 0) memory_.drafted[draft] = 0;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      const Share share = share_of(record, lane() + 32 * k);
      if (share.token != token) continue;
      memory_.drafted[draft] = share.drafted;
      memory_.wanted[draft] =
          static_cast<double>(share.mass) / static_cast<double>(record.target_mass);
    }
  }

  /// BlockOdds::weight of a length.
  __device__ double weight_of(int length) const {
    double weight = 1;
    for (int i = 0; i < length; ++i) {
      const double drafted = memory_.drafted[i];
      weight = drafted == 0 ? 0 : fmin(weight * memory_.wanted[i] / drafted, 1.0);
    }
    return weight;
  }

  /// remainder() in place of a draft, by one warp.
  __device__ Rest rest_of(int draft, double weight) const {
    const DraftRecord& record = block_.records[draft];
    const auto all = static_cast<double>(record.target_mass);
    Rest rest;
    uint64_t mass = 0;
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      Share& share = rest.own[k];
      share = share_of(record, lane() + 32 * k);
      const double wanted = static_cast<double>(share.mass) / all;
      share.term = fmax(weight * wanted - share.drafted, 0.0);
      mass += share.mass;
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      mass += __shfl_xor_sync(kAllLanes, mass, distance);
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
#pragma unroll
      for (int from = 0; from < 32; ++from)
        rest.all += __shfl_sync(kAllLanes, rest.own[k].term, from);
    }
    rest.others_mass = record.target_mass - mass;
    rest.others = weight * (static_cast<double>(rest.others_mass) / all);
    rest.all += rest.others;
    return rest;
  }

  /// BlockOdds::accept of a length above 0.
  __device__ double odds_of(int length) const {
    const double weight = weight_of(length);
    if (length == memory_.num_judged) return weight;
    const double rest = memory_.rests[length];
    const double all = rest + 1 - weight;
    return all > 0 ? rest / all : 0;
  }

  /// By the first warp.
  __device__ void decide() {
    const uint64_t seed = params_.seed;
    bool is_accepted = false;
    if (lane() < memory_.num_judged) {
      const double coin = uniform_of(seed, block_.position, Stream::kAcceptance, threadIdx.x);
      is_accepted = coin < odds_of(lane() + 1);
    }
    const int accepted = 32 - __clz(static_cast<int>(__ballot_sync(kAllLanes, is_accepted)));
    const bool is_whole = accepted == memory_.num_judged;
    Verdict verdict{
        .accepted = accepted,
        .is_over = is_whole && memory_.is_end,
        .token = -1,
        .replaces = false,
        .others = 0,
        .share = uniform_of(seed, block_.position, Stream::kBehindDrafts)};
    if (!is_whole) replace(verdict);
    if (lane() == 0) memory_.verdict = verdict;
  }

  /// The token in place of the first draft that does not stay: candidates first, then the others.
  __device__ void replace(Verdict& verdict) const {
    const int draft = verdict.accepted;
    const Rest rest = rest_of(draft, weight_of(draft));
    double mark = verdict.share * rest.all;
    int32_t last = block_.drafts[draft];
#pragma unroll
    for (int k = 0; k < kOwn; ++k) {
      for (int from = 0; from < 32 && verdict.token < 0; ++from) {
        const double term = __shfl_sync(kAllLanes, rest.own[k].term, from);
        if (term == 0) continue;
        last = __shfl_sync(kAllLanes, rest.own[k].token, from);
        if (mark < term) verdict.token = last;
        mark -= term;
      }
    }
    if (verdict.token >= 0) return;
    if (rest.others > 0) {
      verdict.replaces = true;
      verdict.others = rest.others_mass;
      verdict.share = mark / rest.others;
    } else {
      verdict.token = last;
    }
  }

  const VerifyBlock& block_;
  int num_drafts_;
  const SlotParams& params_;
  VerdictMemory& memory_;
};

}  // namespace di::sampling::cuda
