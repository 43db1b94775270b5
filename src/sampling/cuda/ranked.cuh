// Looking for places in a row's ranking, by the CTAs of a cluster that hold its parts: the twin of
// ranked_masses.h. Masses are whole numbers, so every way to add them gives the same place.
//
// A histogram of counts and masses over equal steps of the logit says in which step a place lies,
// and nearly always few tokens are in it, which are sorted. Where they are many, the place is
// looked for by the bits of the tokens' ranks, eleven at a time from the top; and tokens of equal
// logits, of which there can be many, are walked through by their ids.
#pragma once

#include <cooperative_groups.h>

#include "sampling/cuda/histogram.cuh"
#include "sampling/cuda/ranked_list.cuh"

namespace di::sampling::cuda {

namespace cg = cooperative_groups;

inline constexpr int kNear = 120;  ///< tokens near the best one that a CTA reports at once

/// What they report.
struct NearTokens {
  uint64_t ranks[kCtas][kNear];
  int32_t tokens[kCtas][kNear];
};

/// Shared memory of each CTA.
struct RankingMemory {
  union {
    List list;
    Histogram histogram;
  };
  union {
    NearTokens near;
    uint64_t sums[kFew];  ///< masses up to each token of the sorted list
  };
  BlockScratch scratch;
  Bundle bundle;
  Place place;
  uint64_t ties[kCtas];
  int listed;
};

/// The search, run by all threads of the cluster together.
class Ranking {
 public:
  __device__ Ranking(const RowPart& part, RankingMemory& memory)
      : part_(part),
        memory_(memory),
        cluster_(cg::this_cluster()),
        cta_(static_cast<int>(cluster_.block_rank())) {}

  __device__ RankingMemory& memory() const { return memory_; }
  __device__ bool is_first_cta() const { return cta_ == 0; }
  __device__ int cta() const { return cta_; }
  __device__ void sync() const { cluster_.sync(); }

  /// The same object in the memory of another CTA.
  template <class T>
  __device__ T* in_cta(T* object, int cta) const {
    return cluster_.map_shared_rank(object, static_cast<unsigned int>(cta));
  }

  /// The first place at which a mark is reached that some place reaches; in every thread.
  __device__ __noinline__ Place find(const Scale& scale, const Mark& mark) {
    const Bundle bundle = narrow(mark, scale, true);
    if (bundle.count > kFew) return find_among_ties(bundle, scale, mark);
    list_if([&](double logit) { return bundle.holds(logit); });
    cluster_.sync();
    if (is_first_cta()) {
      List& list = memory_.list;
      list.sort(memory_.listed);
      list.add_masses(memory_.listed, scale, bundle.mass_before, memory_.sums, memory_.scratch);
      const int at =
          first_reaching(memory_.sums, memory_.listed, bundle.count_before, mark, memory_.scratch);
      if (threadIdx.x < kCtas) {
        *in_cta(&memory_.place, static_cast<int>(threadIdx.x)) = {
            list.ranks[at], list.tokens[at], memory_.sums[at]};
      }
    }
    cluster_.sync();
    return memory_.place;
  }

  /// Puts the `count` best tokens in their order at the beginning of the first CTA's list. Steps
  /// are sized by `scale`, which changes no result.
  __device__ __noinline__ void list_best(int64_t count, const Scale& scale) {
    const Mark mark{.is_count = true, .value = static_cast<uint64_t>(count)};
    const Bundle bundle = narrow(mark, scale, false);
    if (bundle.count <= kFew) {
      list_if([&](double logit) { return bundle.holds_or_follows(logit); });
    } else {
      list_if([&](double logit) { return rank_of(logit) < bundle.prefix; });
      const uint64_t wanted = static_cast<uint64_t>(count) - bundle.count_before;
      walk_ties(bundle.prefix, wanted, [&](uint64_t, int32_t token) {
        append(bundle.prefix, token);
      });
    }
    cluster_.sync();
    if (is_first_cta()) memory_.list.sort(memory_.listed);
  }

 private:
  /// Splits until few tokens are left, or only such of one logit. Unless `weighs`, no masses are
  /// added up, which does for marks of counts.
  __device__ __noinline__ Bundle narrow(const Mark& mark, const Scale& scale, bool weighs) {
    constexpr double kRange = 32;  // of distances or logits; beyond it there are no masses
    const double per_logit = kBins / kRange * fmax(scale.inverse_temperature, 1.0);
    Bundle bundle{.step = 0, .steps = {scale.top, per_logit}};
    fill_histogram(scale, weighs, [&](double logit) { return bundle.steps.of(logit); });
    choose(bundle, mark);
    bundle = memory_.bundle;
    if (bundle.count <= kFew) return bundle;
    bundle = {};
    for (int above = 64; above > 0;) {
      const int bits = above > 20 ? 11 : 10;
      const int shift = above - bits;
      fill_histogram(scale, weighs, [&](double logit) {
        const uint64_t rank = rank_of(logit);
        if (above < 64 && rank >> above != bundle.prefix) return -1;
        return static_cast<int>(rank >> shift & ((1u << bits) - 1));
      });
      bundle.prefix <<= bits;
      bundle.shift = shift;
      choose(bundle, mark);
      bundle = memory_.bundle;
      if (bundle.count <= kFew) break;
      above = shift;
    }
    return bundle;
  }

  /// Counts and weighs this CTA's tokens by bin_of(logit); a negative bin takes none.
  template <class BinOf>
  __device__ void fill_histogram(const Scale& scale, bool weighs, const BinOf& bin_of) {
    Histogram& histogram = memory_.histogram;
    const Scale own_scale = scale;
    __syncthreads();  // the list that lies there has been read
    histogram.clear();
    __syncthreads();
    part_.each_four([&](const RowPart& part, int first, const double(&logits)[4]) {
      uint64_t masses[4] = {};
      if (weighs) four_masses(own_scale, logits, masses);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int bin = first + k < part.size ? bin_of(logits[k]) : -1;
        if (bin >= 0) histogram.add(bin, masses[k]);
      }
    });
    cluster_.sync();
  }

  /// Finds the bin that reaches the mark and tells every CTA. `whole` is what was split, as the
  /// chosen bundle but for its last bits or step.
  __device__ void choose(const Bundle& whole, const Mark& mark) {
    if (is_first_cta()) {
      constexpr int kOwn = kBins / kThreads;
      uint64_t masses[kOwn] = {};
      uint64_t counts[kOwn] = {};
      uint64_t mass = 0;
      uint64_t count = 0;
      const int first = static_cast<int>(threadIdx.x) * kOwn;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
#pragma unroll
        for (int cta = 0; cta < kCtas; ++cta) {
          const Histogram* histogram = in_cta(&memory_.histogram, cta);
          masses[i] += histogram->mass(first + i);
          counts[i] += histogram->counts[first + i];
        }
        mass += masses[i];
        count += counts[i];
      }
      block_sums_before(mass, count, memory_.scratch);
      mass += whole.mass_before;
      count += whole.count_before;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const uint64_t before = mark.is_count ? count : mass;
        const uint64_t after = before + (mark.is_count ? counts[i] : masses[i]);
        if (before < mark.value && mark.value <= after) {
          Bundle chosen = whole;
          if (whole.step >= 0) chosen.step = first + i;
          chosen.prefix |= static_cast<uint64_t>(first + i);
          chosen.count = counts[i];
          chosen.count_before = count;
          chosen.mass_before = mass;
          for (int cta = 0; cta < kCtas; ++cta)
            *in_cta(&memory_.bundle, cta) = chosen;
        }
        mass += masses[i];
        count += counts[i];
      }
      if (threadIdx.x == 0) memory_.listed = 0;
    }
    cluster_.sync();
  }

  /// Appends a token to the first CTA's list.
  __device__ void append(uint64_t rank, int32_t token) {
    const int at = atomicAdd(in_cta(&memory_.listed, 0), 1);
    List* list = in_cta(&memory_.list, 0);
    list->ranks[at] = rank;
    list->tokens[at] = token;
  }

  template <class Wanted>
  __device__ void list_if(const Wanted& wanted) {
    part_.each_four([&](const RowPart& part, int first, const double(&logits)[4]) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (first + k < part.size && wanted(logits[k])) {
          append(rank_of(logits[k]), part.begin + first + k);
        }
      }
    });
  }

  /// Calls use(index, token) for the first `wanted` tokens of one rank, counted by ids from 0.
  template <class Use>
  __device__ void walk_ties(uint64_t rank, uint64_t wanted, const Use& use) {
    int64_t own = 0;
    for (int i = threadIdx.x; i < part_.size; i += kThreads)
      own += rank_of(part_.logit(i)) == rank ? 1 : 0;
    own = block_sum(own, memory_.scratch);
    if (threadIdx.x < kCtas) {
      in_cta(memory_.ties, static_cast<int>(threadIdx.x))[cta_] = static_cast<uint64_t>(own);
    }
    cluster_.sync();
    uint64_t index = 0;
    for (int cta = 0; cta < cta_; ++cta)
      index += memory_.ties[cta];
    for (int at = 0; at < part_.size && index < wanted; at += kThreads) {
      const int i = at + static_cast<int>(threadIdx.x);
      const bool is_tie = i < part_.size && rank_of(part_.logit(i)) == rank;
      uint64_t before = is_tie ? 1 : 0;
      uint64_t unused = 0;
      block_sums_before(before, unused, memory_.scratch);
      if (is_tie && index + before < wanted) use(index + before, part_.begin + i);
      index += static_cast<uint64_t>(__syncthreads_count(is_tie ? 1 : 0));
    }
  }

  __device__ Place find_among_ties(const Bundle& bundle, const Scale& scale, const Mark& mark) {
    const uint64_t each = scale.mass(logit_of(bundle.prefix));
    const uint64_t number = mark.is_count ? mark.value - bundle.count_before
                                          : (mark.value - bundle.mass_before + each - 1) / each;
    walk_ties(bundle.prefix, number, [&](uint64_t index, int32_t token) {
      if (index + 1 != number) return;
      for (int cta = 0; cta < kCtas; ++cta) {
        *in_cta(&memory_.place, cta) = {bundle.prefix, token, bundle.mass_before + number * each};
      }
    });
    cluster_.sync();
    return memory_.place;
  }

  const RowPart& part_;
  RankingMemory& memory_;
  cg::cluster_group cluster_;
  int cta_;
};

}  // namespace di::sampling::cuda
