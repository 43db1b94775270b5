// The draw of one row by a cluster of CTAs; see draw.h and docs/sampling.md, "On the device".
//
// Each CTA holds a part of the row in shared memory, so logits are read from memory once. What all
// must know they push into each other's memory and then meet at a cluster barrier.
#pragma once

#include "sampling/cuda/best.cuh"
#include "sampling/cuda/draw_args.cuh"
#include "sampling/cuda/near_draw.cuh"
#include "sampling/cuda/random.cuh"
#include "sampling/cuda/ranked.cuh"
#include "sampling/distribution.h"

namespace di::sampling::cuda {

inline constexpr double kNearDistance =
    8;  ///< tokens within it are reported while masses are added up

/// What a CTA adds up over its part.
struct PartSums {
  uint64_t all = 0;
  uint64_t above_floor = 0;
};

/// Shared memory of a CTA; behind it lie the logits of its part and a bit for each.
struct alignas(16) Memory {
  RankingMemory ranking;
  SlotParams params;
  Ahead ahead;
  uint64_t warp_codes[kWarps];
  Mailbox<uint64_t> codes;  ///< best entries of the logits as they came
  Best warp_best[kWarps];
  Best best[kCtas];  ///< after the edits
  Mailbox<PartSums> sums;
  NearMemory near;
  double exp_sums[kCtas];
  double forced_logit;
};

/// What is to be done for a row.
struct Task {
  int row = 0;              ///< of the logits and the results
  int32_t token = -1;       ///< given or forced
  int64_t num_outputs = 0;  ///< before it
  int64_t position = 0;
  int32_t* place = nullptr;
  int64_t top = 0;
  bool reports_model = false;
  bool reports_processed = false;
};

__device__ inline Task task_of_draw(
    const SlotParams& params, const RowOrder& order, const Results& results
) {
  Task task{.row = order.row, .position = order.position, .place = order.place};
  task.num_outputs = *params.num_outputs + order.ahead.count;
  if (task.num_outputs < params.golden.count) task.token = params.golden.ids[task.num_outputs];
  if (!params.wants_logprobs || results.logprobs == nullptr) return task;
  task.reports_model = !params.processed_logprobs;
  task.reports_processed = params.processed_logprobs;
  task.top = min(params.top_logprobs, static_cast<int64_t>(results.most));
  return task;
}

/// One row in the hands of one cluster.
class RowDraw {
 public:
  __device__ RowDraw(const Args& args, Memory& memory, const RowPart& part)
      : args_(args), memory_(memory), part_(part), ranking_(part_, memory.ranking) {}

  __device__ void run(const Task& task) {
    task_ = task;
    prepare_mailboxes();
    ranking_.announce();
    const uint64_t code = find_best();
    ranking_.await_others();
    const Best best = share_best(code);
    if (!best.is_usable()) return finish(-1, 0);
    model_top_ = best.logit;
    if (task_.reports_model) add_exponentials();
    const int32_t token = task_.token;
    const SlotParams& params = memory_.params;
    if (task_.reports_processed ||
        (token < 0 && (params.temperature != 0 || has_edits(params, task_.num_outputs)))) {
      return draw_processed(best);
    }
    finish(token < 0 ? best.token : token, 0);
  }

 private:
  __device__ const float* row_logits() const {
    return args_.logits + static_cast<int64_t>(task_.row) * args_.vocab_size;
  }

  /// By the thread that says later what is to arrive, so that racecheck sees no other one between.
  __device__ void prepare_mailboxes() {
    if (threadIdx.x != 0) return;
    memory_.codes.prepare();
    memory_.sums.prepare();
    for (int i = 0; i < kNearTries; ++i)
      memory_.near.prepare(i);
    make_known();
  }

  /// Brings the part into shared memory and returns the code of its best entry, in every thread of
  /// the first warp. What the CTA's first thread wrote before is seen by all behind it.
  __device__ uint64_t find_best() {
    BestOfThread best;
    const RowPart part = part_;
    const float* from = row_logits() + part.begin;
    if (args_.vocab_size % 4 == 0) {
      constexpr int kBatch = 8;  // loads on their way at once
      const int vectors = part.size / 4;
      for (int first = threadIdx.x; first < vectors; first += kBatch * kThreads) {
        float4 batch[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int v = first + i * kThreads;
          if (v < vectors) batch[i] = __ldcs(reinterpret_cast<const float4*>(from) + v);
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int v = first + i * kThreads;
          if (v >= vectors) break;
          reinterpret_cast<float4*>(part.logits)[v] = batch[i];
          best.look(batch[i], 4 * v);
        }
      }
    } else {
      for (int i = threadIdx.x; i < (part.size + 3) / 4 * 4; i += kThreads) {
        const float logit = i < part.size ? from[i] : -INFINITY;
        part.logits[i] = logit;
        best.look(logit, i);
      }
    }
    const uint64_t code = best_of_warp(best.code(part.begin));
    if (threadIdx.x % 32 == 0) memory_.warp_codes[threadIdx.x / 32] = code;
    __syncthreads();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return threadIdx.x < 32 ? best_of_warp(lane < kWarps ? memory_.warp_codes[lane] : 0) : 0;
  }

  /// The best of all parts, in every CTA.
  __device__ Best share_best(uint64_t code) {
    if (threadIdx.x < kCtas) {
      memory_.codes.send_to(static_cast<int>(threadIdx.x), ranking_.cta(), code);
    }
    memory_.codes.await();
    uint64_t best = 0;
    for (const uint64_t part : memory_.codes.letters)
      best = max(best, part);
    return best_of_code(best);
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
    if (threadIdx.x % 32 == 0) memory_.warp_best[threadIdx.x / 32] = best;
    __syncthreads();
    for (int warp = 0; warp < kWarps; ++warp)
      best.add(memory_.warp_best[warp]);
    if (threadIdx.x < kCtas) {
      ranking_.in_cta(memory_.best, static_cast<int>(threadIdx.x))[ranking_.cta()] = best;
    }
    ranking_.sync();
    best = {};
    for (int cta = 0; cta < kCtas; ++cta)
      best.add(memory_.best[cta]);
    return best;
  }

  /// The logarithm of Σ exp(logit − top) for the model's own distribution, and its best tokens.
  __device__ void add_exponentials() {
    double sum = 0;
    const float* logits = part_.logits;
    const int size = part_.size;
    const double top = model_top_;
#pragma unroll 4
    for (int i = threadIdx.x; i < size; i += kThreads)
      sum += exp_of_minus(top - static_cast<double>(logits[i]));
    sum = block_sum(sum, memory_.ranking.scratch);
    if (threadIdx.x < kCtas) {
      ranking_.in_cta(memory_.exp_sums, static_cast<int>(threadIdx.x))[ranking_.cta()] = sum;
    }
    ranking_.sync();
    double total = 0;
    for (int cta = 0; cta < kCtas; ++cta)
      total += memory_.exp_sums[cta];
    log_sum_ = log(total);
    report_best({model_top_, 1}, [&](double logit, int32_t) {
      return logit - model_top_ - log_sum_;
    });
  }

  __device__ float model_logprob(int32_t token) const {
    return as_reported(static_cast<double>(row_logits()[token]) - model_top_ - log_sum_);
  }

  __device__ static float as_reported(double logprob) {
    return static_cast<float>(logprob < kLogprobFloor ? kLogprobFloor : logprob);
  }

  /// Writes the best tokens with logprob(logit, token).
  template <class Logprob>
  __device__ void report_best(const Scale& scale, const Logprob& logprob) {
    const auto count = min(task_.top, static_cast<int64_t>(args_.vocab_size));
    if (count == 0) return;
    ranking_.list_best(count, scale);
    if (!ranking_.is_first_cta()) return;
    const List& list = memory_.ranking.list;
    for (int64_t i = threadIdx.x; i < count; i += kThreads) {
      const float reported = as_reported(logprob(logit_of(list.ranks[i]), list.tokens[i]));
      args_.results.write_top(task_.row, i, list.tokens[i], reported);
    }
    reported_ = count;
  }

  /// Edits, cuts and draws.
  __device__ void draw_processed(Best best) {
    const SlotParams& params = memory_.params;
    if (has_edits(params, task_.num_outputs)) {
      __syncthreads();
      part_.edit(task_.num_outputs);
      __syncthreads();
      best = share_edited_best(best_edited());
    }
    if (task_.token < 0 && !best.is_usable()) return finish(-1, 0);
    if (!best.is_usable() || params.temperature == 0) return take_best(best);
    const Scale scale{best.logit, fmin(1 / params.temperature, 1e300)};
    const double share = uniform_of_target(params.seed, task_.position);
    if (!task_.reports_processed) {
      const int32_t token = NearDraw(part_, ranking_, memory_.near).run(scale, share);
      if (token >= 0) return finish(token, 0);
    }
    draw_anywhere(scale, share);
  }

  __device__ Best best_edited() const {
    Best best;
    const RowPart part = part_;
    for (int first = 4 * threadIdx.x; first < part.size; first += 4 * kThreads) {
      double logits[4];
      part.four_logits(first, logits);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (logits[k] > best.logit) {
          best.logit = logits[k];
          best.token = part.begin + first + k;
        }
      }
    }
    return best;
  }

  /// Temperature 0, or nothing that can be drawn beside a forced token.
  __device__ void take_best(const Best& best) {
    const int32_t token = task_.token < 0 ? best.token : task_.token;
    const auto logprob = [&](double, int32_t other) {
      return best.is_usable() && other == best.token ? 0.0 : kLogprobFloor;
    };
    if (task_.reports_processed) report_best({best.logit, 1}, logprob);
    finish(token, task_.reports_processed ? as_reported(logprob(0, token)) : 0.0f);
  }

  /// Masses of all parts.
  __device__ PartSums add_masses(Scale scale) {
    const auto floor = static_cast<uint64_t>(ceil(memory_.params.min_p * kUnitMass));
    const RowPart part = part_;
    PartSums sums;
    for (int first = 4 * threadIdx.x; first < part.size; first += 4 * kThreads) {
      double logits[4];
      double distances[4];
      uint64_t masses[4];
      part.four_logits(first, logits);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        distances[k] = scale.distance(logits[k]);
      four_masses(distances, masses);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        sums.all += masses[k];
        sums.above_floor += masses[k] >= floor ? masses[k] : 0;
      }
    }
    BlockScratch& scratch = memory_.ranking.scratch;
    sums.all = block_sum(sums.all, scratch);
    sums.above_floor = block_sum(sums.above_floor, scratch);
    if (threadIdx.x < kCtas) {
      memory_.sums.send_to(static_cast<int>(threadIdx.x), ranking_.cta(), sums);
    }
    memory_.sums.await();
    sums = {};
    for (const PartSums& of_cta : memory_.sums.letters) {
      sums.all += of_cta.all;
      sums.above_floor += of_cta.above_floor;
    }
    return sums;
  }

  /// A draw for which exact sums or places far from the best token are needed.
  __device__ void draw_anywhere(const Scale& scale, double share) {
    const SlotParams& params = memory_.params;
    const PartSums sums = add_masses(scale);
    uint64_t kept = sums.all;
    if (params.top_k > 0 && params.top_k < args_.vocab_size) {
      kept = ranking_.find(scale, {true, static_cast<uint64_t>(params.top_k)}).mass;
    }
    if (params.top_p < 1) kept = ranking_.find(scale, {false, share_mark(params.top_p, kept)}).mass;
    if (sums.above_floor < kept) kept = sums.above_floor;
    int32_t token = task_.token;
    double logit = 0;
    if (token < 0) {
      const Place place = ranking_.find(scale, {false, drawn_mark(share, kept)});
      token = place.token;
      logit = logit_of(place.rank);
    } else if (task_.reports_processed) {
      logit = forced_logit();
    }
    if (!task_.reports_processed) return finish(token, 0);
    Place last;
    const bool is_cut = kept < sums.all;
    if (is_cut) last = ranking_.find(scale, {false, kept});
    const double log_mass = log(static_cast<double>(kept) / kUnitMass);
    const auto logprob = [&](double of, int32_t other) {
      const uint64_t rank = rank_of(of);
      if (is_cut && (rank != last.rank ? rank > last.rank : other > last.token)) {
        return kLogprobFloor;
      }
      return -scale.distance(of) - log_mass;
    };
    report_best(scale, logprob);
    finish(token, as_reported(logprob(logit, token)));
  }

  /// The edited logit of the forced token, which lies in one of the parts.
  __device__ double forced_logit() {
    const int i = task_.token - part_.begin;
    if (threadIdx.x < kCtas && i >= 0 && i < part_.size) {
      *ranking_.in_cta(&memory_.forced_logit, static_cast<int>(threadIdx.x)) = part_.logit(i);
    }
    ranking_.sync();
    return memory_.forced_logit;
  }

  /// Writes the draw and counts it; the first CTA does. `processed` is reported unless the model's
  /// own logprob is, or none.
  __device__ void finish(int32_t token, float processed) {
    if (!ranking_.is_first_cta()) return;
    __syncthreads();
    const Results& results = args_.results;
    if (token < 0) reported_ = 0;
    for (int64_t i = reported_ + threadIdx.x; i < results.most; i += kThreads)
      results.write_top(task_.row, i, -1, 0);
    if (threadIdx.x != 0) return;
    const float logprob = token < 0 ? 0.0f : task_.reports_model ? model_logprob(token) : processed;
    results.write(task_.row, token, logprob);
    if (token < 0 || !args_.counts) return;
    if (task_.place != nullptr) *task_.place = token;
    const SlotParams& params = memory_.params;
    *params.num_outputs = task_.num_outputs + 1;
    if (params.seen != nullptr) ++params.seen[token];
  }

  const Args& args_;
  Memory& memory_;
  RowPart part_;
  Ranking ranking_;
  Task task_;
  double model_top_ = 0;
  double log_sum_ = 0;
  int64_t reported_ = 0;
};

}  // namespace di::sampling::cuda
