// One row of logits in the hands of one cluster of CTAs: what draws, drafts and scores have in
// common. See draw.h and docs/sampling.md, "On the device".
//
// Each CTA holds a part of the row in shared memory, so logits are read from memory once. What all
// must know they push into each other's memory.
#pragma once

#include "sampling/cuda/cuts.cuh"
#include "sampling/cuda/random.cuh"
#include "sampling/cuda/row_task.cuh"
#include "sampling/distribution.h"

namespace di::sampling::cuda {

/// One row, by all threads of its cluster together.
class RowWork {
 public:
  __device__ RowWork(const Args& args, Memory& memory, const RowPart& part)
      : args(args),
        memory(memory),
        task(memory.task),
        part(part),
        ranking(this->part, memory.ranking),
        near(this->part, ranking, memory.near) {}

  /// Finds the best token of the row. The first warp calls tell(lane) while logits are under way,
  /// behind which the task and the parameters are in shared memory.
  template <class Tell>
  __device__ Best load(const Tell& tell) {
    const uint64_t code = find_best(tell);
    __cluster_barrier_wait();
    const auto lane = static_cast<int>(threadIdx.x) % 32;
    const auto warp = static_cast<int>(threadIdx.x) / 32;
    auto& codes = memory.codes;
    if (lane < kCtas) codes.send_to(lane, ranking.cta() * kWarps + warp, code);
    codes.await();
    __syncthreads();  // what was told
    return best_of_code(best_of_warp(max(codes.letters[lane], codes.letters[lane + 32])));
  }

  /// Makes the request's edits, if there are any, and finds the best token behind them.
  __device__ Best edit(const Best& best) {
    if (!has_edits(memory.params, task.num_outputs)) return best;
    __syncthreads();
    part.edit(task.num_outputs);
    __syncthreads();
    return share_edited_best(best_edited());
  }

  __device__ Scale scale_of(const Best& best) const {
    return {best.logit, task.inverse_temperature};
  }

  /// Masses of the whole row; once for a row.
  __device__ PartSums add_masses(Scale scale) {
    const uint64_t floor = floor_of(memory.params);
    uint64_t all = 0;
    uint64_t above_floor = 0;
    part.each_four([&](const RowPart&, int, const double(&logits)[4]) {
      uint64_t masses[4];
      four_masses(scale, logits, masses);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        all += masses[k];
        above_floor += masses[k] >= floor ? masses[k] : 0;
      }
    });
    BlockScratch& scratch = memory.ranking.scratch;
    PartSums sums{block_sum(all, scratch), block_sum(above_floor, scratch)};
    if (threadIdx.x < kCtas) {
      memory.sums.send_to(static_cast<int>(threadIdx.x), ranking.cta(), sums);
    }
    memory.sums.await();
    sums = {};
    for (const PartSums& of_cta : memory.sums.letters) {
      sums.all += of_cta.all;
      sums.above_floor += of_cta.above_floor;
    }
    return sums;
  }

  /// What the cuts leave of exact sums, by the whole ranking. The last token is found only if it is
  /// asked for.
  __device__ Kept keep(const Scale& scale, const PartSums& sums, bool with_last) {
    const SlotParams& params = memory.params;
    Kept kept{.mass = sums.all};
    if (params.top_k > 0 && params.top_k < args.vocab_size) {
      kept.mass = ranking.find(scale, {true, static_cast<uint64_t>(params.top_k)}).mass;
    }
    if (params.top_p < 1) {
      kept.mass = ranking.find(scale, {false, share_mark(params.top_p, kept.mass)}).mass;
    }
    kept.mass = min(kept.mass, sums.above_floor);
    kept.is_cut = kept.mass < sums.all;
    if (!kept.is_cut || !with_last) return kept;
    const Place last = ranking.find(scale, {false, kept.mass});
    kept.last_rank = last.rank;
    kept.last_token = last.token;
    return kept;
  }

  /// The logarithm of Σ exp(logit − top) for the model's own distribution, and its best tokens.
  __device__ void report_model(double top) {
    double sum = 0;
    const float* logits = part.logits;
    const int size = part.size;
#pragma unroll 4
    for (int i = threadIdx.x; i < size; i += kThreads)
      sum += exp_of_minus(top - static_cast<double>(logits[i]));
    sum = block_sum(sum, memory.ranking.scratch);
    if (threadIdx.x < kCtas) {
      ranking.in_cta(memory.exp_sums, static_cast<int>(threadIdx.x))[ranking.cta()] = sum;
    }
    ranking.sync();
    double total = 0;
    for (int cta = 0; cta < kCtas; ++cta)
      total += memory.exp_sums[cta];
    model_top_ = top;
    log_sum_ = log(total);
    report_best({top, 1}, [&](double logit, int32_t) { return logit - model_top_ - log_sum_; });
  }

  __device__ static float as_reported(double logprob) {
    return static_cast<float>(logprob < kLogprobFloor ? kLogprobFloor : logprob);
  }

  /// Writes the best tokens with logprob(logit, token).
  template <class Logprob>
  __device__ void report_best(const Scale& scale, const Logprob& logprob) {
    const auto count = min(task.top, static_cast<int64_t>(args.vocab_size));
    if (count == 0) return;
    ranking.list_best(count, scale);
    if (!ranking.is_first_cta()) return;
    const List& list = memory.ranking.list;
    for (int64_t i = threadIdx.x; i < count; i += kThreads) {
      const float reported = as_reported(logprob(logit_of(list.ranks[i]), list.tokens[i]));
      args.results.write_top(task.row, i, list.tokens[i], reported);
    }
    reported_ = count;
  }

  /// The edited logit of a token, which lies in one of the parts; in every CTA.
  __device__ double logit_of_token(int32_t token) {
    const int i = token - part.begin;
    if (threadIdx.x < kCtas && i >= 0 && i < part.size) {
      *ranking.in_cta(&memory.forced_logit, static_cast<int>(threadIdx.x)) = part.logit(i);
    }
    ranking.sync();
    return memory.forced_logit;
  }

  /// Writes the draw and counts it; the first CTA does. `processed` is reported unless the model's
  /// own logprob is, or none.
  __device__ void finish(int32_t token, float processed) {
    if (!ranking.is_first_cta()) return;
    __syncthreads();
    const Results& results = args.results;
    if (token < 0) reported_ = 0;
    for (int64_t i = reported_ + threadIdx.x; i < results.most; i += kThreads)
      results.write_top(task.row, i, -1, 0);
    if (threadIdx.x != 0) return;
    const float logprob = token < 0 ? 0.0f : task.reports_model ? model_logprob(token) : processed;
    results.write(task.row, token, logprob);
    if (token < 0 || !args.counts) return;
    if (task.place != nullptr) *task.place = token;
    const SlotParams& params = memory.params;
    *params.num_outputs = task.num_outputs + 1;
    if (params.seen != nullptr) ++params.seen[token];
  }

  const Args& args;
  Memory& memory;
  const Task& task;  ///< known behind load()
  RowPart part;
  Ranking ranking;
  NearSearch near;

 private:
  /// Brings the part into shared memory; the code of the warp's best entry. `tell` as of load().
  template <class Tell>
  __device__ uint64_t find_best(const Tell& tell) {
    BestOfThread best;
    const RowPart own = part;
    if (args.vocab_size % 4 == 0) {
      const int first = 4 * static_cast<int>(threadIdx.x);
      for (int i = first; i < own.size; i += 4 * kThreads)
        copy_four(own.logits + i, own.given + i);
      begin(tell);
      await_copies();
#pragma unroll 4
      for (int i = first; i < own.size; i += 4 * kThreads)
        best.look(own.four_as_given(i), i);
    } else {
      begin(tell);
      for (int i = threadIdx.x; i < (own.size + 3) / 4 * 4; i += kThreads) {
        const float logit = i < own.size ? own.given[i] : -INFINITY;
        own.logits[i] = logit;
        best.look(logit, i);
      }
    }
    return best_of_warp(best.code(own.begin));
  }

  /// Prepares the mailboxes, says so to the other CTAs, and tells.
  template <class Tell>
  __device__ void begin(const Tell& tell) {
    // By the thread that says later what is to arrive, so that racecheck sees no other one between.
    if (threadIdx.x == 0) {
      memory.codes.prepare();
      memory.sums.prepare();
      for (int i = 0; i < kNearTries; ++i)
        memory.near.prepare(i);
      make_known();
    }
    __cluster_barrier_arrive_relaxed();
    if (threadIdx.x < 32) tell(static_cast<int>(threadIdx.x));
  }

  /// 16 bytes from the device's memory to shared memory, beside whatever the thread does next.
  __device__ static void copy_four(float* to, const float* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from)
                 : "memory");
  }
  /// The thread sees all that it has copied.
  __device__ static void await_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
  }

  __device__ float model_logprob(int32_t token) const {
    return as_reported(static_cast<double>(part.given[token - part.begin]) - model_top_ - log_sum_);
  }

  __device__ Best best_edited() const {
    Best best;
    part.each_four([&](const RowPart& own, int first, const double(&logits)[4]) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (logits[k] > best.logit) {
          best.logit = logits[k];
          best.token = own.begin + first + k;
        }
      }
    });
    return best;
  }

  /// The best of all threads of the cluster, after the edits.
  __device__ __noinline__ Best share_edited_best(Best best) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      Best other;
      other.logit = __shfl_xor_sync(kAllLanes, best.logit, distance);
      other.token = __shfl_xor_sync(kAllLanes, best.token, distance);
      best.add(other);
    }
    if (threadIdx.x % 32 == 0) memory.warp_best[threadIdx.x / 32] = best;
    __syncthreads();
    for (int warp = 0; warp < kWarps; ++warp)
      best.add(memory.warp_best[warp]);
    if (threadIdx.x < kCtas) {
      ranking.in_cta(memory.best, static_cast<int>(threadIdx.x))[ranking.cta()] = best;
    }
    ranking.sync();
    best = {};
    for (int cta = 0; cta < kCtas; ++cta)
      best.add(memory.best[cta]);
    return best;
  }

  double model_top_ = 0;
  double log_sum_ = 0;
  int64_t reported_ = 0;
};

}  // namespace di::sampling::cuda
