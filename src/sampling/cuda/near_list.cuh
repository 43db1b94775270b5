// The near tokens of a row (near.cuh) in the hands of its first CTA: their order and exact masses.
#pragma once

#include "sampling/cuda/mailbox.cuh"
#include "sampling/cuda/ranked.cuh"

namespace di::sampling::cuda {

/// How often more of them are listed, before exact sums are added up.
inline constexpr int kNearTries = 3;

/// A number between two.
struct Range {
  uint64_t low = 0;
  uint64_t high = 0;
};

/// One of the near tokens, in the hands of one thread.
struct NearToken {
  uint64_t rank = 0;
  int32_t token = -1;
  int before = 0;         ///< tokens that rank before it
  uint64_t own_mass = 0;  ///< 0: there is none
  uint64_t mass = 0;      ///< up to it, it included

  /// Whether this is the place of a mark, if it is among these tokens.
  __device__ bool reaches(const Mark& mark) const {
    if (own_mass == 0) return false;
    if (mark.is_count) return before + 1 == static_cast<int64_t>(mark.value);
    return mass >= mark.value && mass - own_mass < mark.value;
  }
};

/// Shared memory of each CTA, beside that of the ranking.
struct NearMemory {
  Mailbox<uint64_t, kCtas * kWarps> sums[kNearTries];  ///< of each warp
  Mailbox<uint64_t, 1> verdicts[kNearTries];
  Arrival arrived[kNearTries];  ///< of near tokens, in the first CTA
  NearToken found;              ///< the place of a mark
  int listed[kNearTries];       ///< near tokens of this CTA

  /// As Mailbox::prepare(), for one of the tries.
  __device__ void prepare(int i) {
    sums[i].prepare();
    verdicts[i].prepare();
    arrived[i].prepare();
    listed[i] = 0;
  }
};

/// The near tokens of a row in its first CTA, whose threads use it together.
class NearList {
 public:
  /// `counts`: tokens that each CTA has reported. They are sorted if they are many, or asked to be;
  /// else each thread takes one and finds what ranks before it.
  __device__ NearList(
      const int (&counts)[kCtas],
      RankingMemory& ranking,
      NearMemory& memory,
      const Scale& scale,
      bool sorts
  )
      : ranking_(ranking), memory_(memory) {
    for (const int count : counts)
      total_ += count;
    is_sorted_ = sorts || total_ > kThreads;
    if (!is_usable()) return;
    if (is_sorted_) {
      sort(counts, scale);
    } else {
      own_ = share(counts, scale);
    }
    mass_ = find({true, static_cast<uint64_t>(total_)}).mass;
  }

  /// Neither too many nor none.
  __device__ bool is_usable() const { return total_ > 0 && total_ <= kFew; }
  __device__ int size() const { return total_; }
  __device__ uint64_t mass() const { return mass_; }
  /// Of a sorted list: masses up to each token, and the tokens.
  __device__ const uint64_t* sums() const { return ranking_.sums; }
  __device__ const List& list() const { return ranking_.list; }
  __device__ uint64_t mass_of(int i) const {
    return ranking_.sums[i] - (i > 0 ? ranking_.sums[i - 1] : 0);
  }

  /// The place of a mark that one of the tokens reaches.
  __device__ NearToken find(const Mark& mark) {
    if (is_sorted_) return find_sorted(ranking_, total_, mark);
    __syncthreads();
    if (own_.reaches(mark)) memory_.found = own_;
    __syncthreads();
    return memory_.found;
  }

  /// Σ of the masses that are at least `floor`.
  __device__ uint64_t mass_above(uint64_t floor) {
    uint64_t above = own_.own_mass >= floor ? own_.own_mass : 0;
    for (int i = threadIdx.x; is_sorted_ && i < total_; i += kThreads)
      above += mass_of(i) >= floor ? mass_of(i) : 0;
    return block_sum(above, ranking_.scratch);
  }

 private:
  __device__ __noinline__ static NearToken find_sorted(
      RankingMemory& ranking, int total, Mark mark
  ) {
    const int at = first_reaching(ranking.sums, total, 0, mark, ranking.scratch);
    const List& list = ranking.list;
    return {.rank = list.ranks[at], .token = list.tokens[at], .mass = ranking.sums[at]};
  }

  __device__ void sort(const int (&counts)[kCtas], const Scale& scale) {
    List& list = ranking_.list;
    int first = 0;
    for (int cta = 0; cta < kCtas; ++cta) {
      for (int i = threadIdx.x; i < counts[cta]; i += kThreads) {
        list.ranks[first + i] = ranking_.near.ranks[cta][i];
        list.tokens[first + i] = ranking_.near.tokens[cta][i];
      }
      first += counts[cta];
    }
    list.sort(total_);
    list.add_masses(total_, scale, 0, ranking_.sums, ranking_.scratch);
  }

  __device__ NearToken share(const int (&counts)[kCtas], const Scale& scale) const {
    const auto own = static_cast<int>(threadIdx.x);
    NearToken result;
    int first = 0;
#pragma unroll
    for (int cta = 0; cta < kCtas; ++cta) {
      if (own >= first && own < first + counts[cta]) {
        result.rank = ranking_.near.ranks[cta][own - first];
        result.token = ranking_.near.tokens[cta][own - first];
      }
      first += counts[cta];
    }
    if (own < first) result.own_mass = scale.mass(logit_of(result.rank));
    // Not where masses lie otherwise: there others may be reading near tokens still.
    List& list = ranking_.list;
    uint64_t* const masses = list.ranks + kThreads;
    list.ranks[own] = result.rank;
    list.tokens[own] = result.token;
    masses[own] = result.own_mass;
    __syncthreads();
    if (own / 32 * 32 >= first) return result;
    result.mass = result.own_mass;
#pragma unroll 4
    for (int i = 0; i < first; ++i) {
      const bool is_first = is_before(list.ranks[i], list.tokens[i], result.rank, result.token);
      result.before += is_first ? 1 : 0;
      result.mass += is_first ? masses[i] : 0;
    }
    return result;
  }

  RankingMemory& ranking_;
  NearMemory& memory_;
  int total_ = 0;
  bool is_sorted_ = false;
  uint64_t mass_ = 0;
  NearToken own_;
};

}  // namespace di::sampling::cuda
