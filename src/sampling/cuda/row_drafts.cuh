// Drafts of a row that block verification is to judge: how they are drawn, as choose_draft() draws
// them (draft_law.h), and what the target gives to those that could have been drawn, as
// Distribution tells it.
#pragma once

#include "sampling/cuda/draft_record.h"
#include "sampling/cuda/row_draw.cuh"

namespace di::sampling::cuda {

/// Draws a draft, and writes down by which law.
class RowDraft {
 public:
  __device__ RowDraft(RowWork& row, DraftRecord& record) : row_(row), record_(record) {}

  /// The drafter's best token, which lies where the draft will, stays when nothing can be drawn.
  template <class Tell>
  __device__ void run(const Tell& tell) {
    Best best = row_.load(tell);
    const int32_t forced = row_.task.token;
    if (!best.is_usable()) return take(-1);
    if (forced >= 0) return take(forced);
    best = row_.edit(best);
    if (!best.is_usable()) return take(-1);
    const Scale scale = row_.scale_of(best);
    const SlotParams& params = row_.memory.params;
    const auto decide = [&](NearList& near, const Range& others, float cut) {
      const Range above_floor = mass_above_floor(near, params, scale, cut, others);
      const Range kept = kept_range(near, params, others, above_floor);
      const int count = num_candidates(near.sums(), near.size(), kept.low);
      if (num_candidates(near.sums(), near.size(), kept.high) != count) return false;
      draw(count);
      return true;
    };
    if (row_.near.run(scale, true, decide)) return;
    const Kept kept = row_.keep(scale, row_.add_masses(scale), false);
    const int64_t most = min(kDraftCandidates, static_cast<int64_t>(row_.args.vocab_size));
    row_.ranking.list_best(most, scale);
    if (!row_.ranking.is_first_cta()) return;
    RankingMemory& memory = row_.memory.ranking;
    const auto size = static_cast<int>(most);
    memory.list.add_masses(size, scale, 0, memory.sums, memory.scratch);
    draw(num_candidates(memory.sums, size, kept.mass));
  }

 private:
  /// The draft is the only choice; −1: it is there already.
  __device__ void take(int32_t token) {
    if (!row_.ranking.is_first_cta() || threadIdx.x != 0) return;
    if (token < 0) token = row_.args.results.tokens[row_.task.row];
    record_.mass = 1;
    record_.count = 1;
    record_.tokens[0] = token;
    record_.masses[0] = 1;
    row_.args.results.write(row_.task.row, token, 0);
  }

  /// How many of the first tokens of a sorted list may be drafted when the cuts keep `kept`.
  __device__ int num_candidates(const uint64_t* sums, int size, uint64_t kept) {
    const auto own = static_cast<int>(threadIdx.x);
    const uint64_t before = own > 0 && own < size ? sums[own - 1] : 0;
    const bool is_candidate = own < min(size, static_cast<int>(kDraftCandidates)) &&
                              before < kept && sums[own] - before >= kLeastDraftMass;
    return __syncthreads_count(is_candidate ? 1 : 0);
  }

  /// Draws one of the first `count` tokens of the sorted list in the first CTA.
  __device__ void draw(int count) {
    RankingMemory& memory = row_.memory.ranking;
    const uint64_t all = memory.sums[count - 1];
    const auto mark = static_cast<uint64_t>(row_.task.share * static_cast<double>(all));
    const int drawn = first_reaching(memory.sums, count, 0, {.value = mark + 1}, memory.scratch);
    const auto own = static_cast<int>(threadIdx.x);
    if (own < count) {
      record_.tokens[own] = memory.list.tokens[own];
      record_.masses[own] = memory.sums[own] - (own > 0 ? memory.sums[own - 1] : 0);
    }
    if (own != 0) return;
    record_.mass = all;
    record_.count = count;
    row_.args.results.write(row_.task.row, memory.list.tokens[min(drawn, count - 1)], 0);
  }

  RowWork& row_;
  DraftRecord& record_;
};

/// Writes beside a draft's candidates what the target's row gives to them, and tells the draft, in
/// case that it stays.
class RowJudge {
 public:
  __device__ RowJudge(RowWork& row, DraftRecord& record) : row_(row), record_(record) {}

  template <class Tell>
  __device__ void run(const Tell& tell) {
    Best best = row_.load(tell);
    if (!best.is_usable()) return write({});
    const Task& task = row_.task;
    const int32_t forced = task.forced;
    if (task.reports_model) row_.report_model(best.logit);
    if (forced >= 0) weigh_forced(forced);
    if (forced >= 0 && !task.reports_processed) return row_.finish(task.token, 0);
    best = row_.edit(best);
    if (forced < 0 && !best.is_usable()) return write({});
    const LeftOut none;
    RowDraw draw(row_, none);
    if (!best.is_usable()) return draw.take_best(best);
    const Scale scale = row_.scale_of(best);
    const PartSums sums = row_.add_masses(scale);
    if (forced < 0) weigh(scale);
    if (task.reports_processed) {
      const Kept kept = draw.report_and_draw(scale, sums);
      if (forced < 0) write(kept);
      return;
    }
    write(keep(scale, sums));
    row_.finish(task.token, 0);
  }

 private:
  /// Calls use(i, token) for the candidates; those of a thread.
  template <class Use>
  __device__ void each_candidate(const Use& use) const {
    for (int i = threadIdx.x; i < record_.count; i += kThreads)
      use(i, record_.tokens[i]);
  }

  __device__ void write(const Kept& kept) {
    if (!row_.ranking.is_first_cta() || threadIdx.x != 0) return;
    record_.target_mass = kept.mass;
    record_.last_rank = kept.last_rank;
    record_.last_token = kept.last_token;
  }

  __device__ void weigh_forced(int32_t forced) {
    write({.mass = 1});
    if (!row_.ranking.is_first_cta()) return;
    each_candidate([&](int i, int32_t token) {
      record_.target_ranks[i] = 0;
      record_.target_masses[i] = token == forced ? 1 : 0;
    });
  }

  /// Each CTA weighs those in its part.
  __device__ void weigh(const Scale& scale) {
    each_candidate([&](int i, int32_t token) {
      const int own = token - row_.part.begin;
      if (own < 0 || own >= row_.part.size) return;
      const double logit = row_.part.logit(own);
      record_.target_ranks[i] = rank_of(logit);
      record_.target_masses[i] = scale.mass(logit);
    });
  }

  /// What the cuts leave, in the first CTA: by the near tokens when they are enough.
  __device__ Kept keep(const Scale& scale, const PartSums& sums) {
    const SlotParams& params = row_.memory.params;
    const bool may_cut = params.top_k > 0 || params.top_p < 1 || sums.above_floor < sums.all;
    Kept kept{.mass = sums.all};
    if (!may_cut) return kept;
    const auto decide = [&](NearList& near, const Range&, float) {
      const Range others{sums.all - near.mass(), sums.all - near.mass()};
      const Range range = kept_range(near, params, others, {sums.above_floor, sums.above_floor});
      if (range.low != range.high) return false;
      if (range.low == sums.all) return true;
      if (range.low > near.mass()) return false;
      const NearToken last = near.find({.value = range.low});
      kept = {last.mass, true, last.rank, last.token};
      return true;
    };
    return row_.near.run(scale, false, decide) ? kept : row_.keep(scale, sums, true);
  }

  RowWork& row_;
  DraftRecord& record_;
};

}  // namespace di::sampling::cuda
