// StatsWindow: collects what steps and requests contribute and condenses the newest of it into
// Stats. Bounded, whether anybody reads it or not.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "engine/stats.h"
#include "model/flops.h"
#include "sched/scheduler.h"

namespace di::engine {

/// What a window is.
struct StatsOptions {
  double window_seconds = 10;          ///< 0: no such limit
  int64_t window_steps = 0;            ///< newest steps it holds at most; 0: no such limit
  int64_t max_num_batched_tokens = 0;  ///< rows that a step may have; 0: unknown
  double peak_flops = 0;  ///< FP8-equivalent FLOP/s of the machine (its FP8 rate, or twice its
                          ///< BF16 rate); 0: unknown
};

/// A choice that ended.
struct FinishedChoice {
  FinishReason reason = FinishReason::kEos;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  double ttft_seconds = 0;   ///< from arrival to the first token; read when there is one
  double total_seconds = 0;  ///< from arrival to the end
};

/// What became of a step's drafts.
struct DraftRecord {
  std::vector<int64_t> verified = {};  ///< by draft position, first draft first
  std::vector<int64_t> accepted = {};  ///< of the same length
  std::vector<double> expected = {};   ///< of the same length: Σ of the probabilities, by the
                                       ///< drafter's confidences, that each of them is accepted
  int64_t num_sequences = 0;           ///< sequences that decoded, with drafts or without
  int64_t num_tokens = 0;              ///< that these gained

  /// Counts one sequence that decoded: `survivals` of each draft it verified, in order.
  void add(std::span<const double> survivals, int64_t num_accepted, int64_t num_tokens_gained);
};

/// Everything one step contributes.
struct StepRecord {
  double time = 0;           ///< when its results were applied, seconds of the steady clock
  double step_seconds = 0;   ///< forward pass and draws
  double plan_seconds = 0;   ///< host
  double apply_seconds = 0;  ///< host
  int64_t num_prefill_rows = 0;
  int64_t num_decode_rows = 0;
  int64_t num_output_tokens = 0;
  int64_t num_cached_tokens = 0;  ///< prompt tokens that were taken over instead of computed
  int64_t num_preempted = 0;
  int64_t query_key_pairs = 0;  ///< Σ over sequences of rows · tokens seen by the last row
  int64_t max_keys = 0;         ///< tokens seen by the last row of the longest sequence
  int64_t min_keys = 0;         ///< and of the shortest
  model::Flops flops = {};
  double expert_max = 0;   ///< tokens of each layer's busiest expert, summed over layers
  double expert_mean = 0;  ///< tokens of each layer's mean expert, summed over layers
  DraftRecord drafts = {};
  std::vector<double> ttft_seconds = {};      ///< of requests whose first token it drew
  std::vector<FinishedChoice> finished = {};  ///< choices that ended with it

  /// Counts the rows of one sequence into query_key_pairs, max_keys and min_keys.
  void add_keys(int64_t start, int64_t num_rows);
};

/// The newest part of an engine's life.
///
/// Edges. Everything that is added carries the time at which it happened. A window that ends now
/// begins at the latest of: the start, or the last restart(); now − window_seconds; the time of the
/// newest thing that had to leave it, because it holds window_steps steps or kMaxSlices things.
/// What happened later than its beginning counts, whole, and the time since its beginning is what
/// rates are divided by. So a lone step has a rate, and an idle engine's rates fall to 0.
///
/// Distributions of latencies are those of the newest kMaxSamples requests in the window.
///
/// Thread: one at a time. Times that are given never decrease. Cost: a step about 0.5 us; stats()
/// about 0.1 us a step of the window, 1 ms when it is full.
class StatsWindow {
 public:
  static constexpr std::size_t kMaxSlices = 8192;
  static constexpr std::size_t kMaxSamples = 4096;

  /// An empty window that begins now. Throws Error{kInvalidArgument} for negative options.
  StatsWindow(const StatsOptions& options, double now);

  void add_request() { ++totals_.total_requests; }
  void add_refusal() { ++totals_.total_refused; }
  void add_step(StepRecord step);
  /// A choice that ended between steps.
  void add_ending(double now, const FinishedChoice& choice);

  /// Empties the window; it begins now.
  void restart(double now);

  /// The state of things. `counts`: the scheduler's, at the same moment.
  Stats stats(double now, const sched::SchedulerCounts& counts) const;

 private:
  /// Choices that ended at one moment.
  struct Endings {
    int64_t num_finished = 0;
    int64_t num_aborted = 0;
    int64_t num_failed = 0;
    int64_t prompt_tokens = 0;  // of the finished, as all below
    int64_t output_tokens = 0;
    double context_tokens = 0;  // Σ over output tokens of the tokens before
  };
  /// What happened at one moment: a step with its endings, or endings alone.
  struct Slice {
    double time = 0;
    std::optional<StepRecord> step;  // its lists are moved on: to `endings` and the samples
    Endings endings = {};
  };
  struct Sample {
    double time = 0;
    double seconds = 0;
  };
  using Samples = std::deque<Sample>;
  struct Sums;

  void count_ending(double now, const FinishedChoice& choice, Endings& endings);
  void add_slice(Slice slice);
  bool is_full() const;
  double begin(double now) const;
  static void add_sample(Samples& samples, const Sample& sample);
  std::optional<Distribution> distribution(const Samples& samples, double now) const;
  void fill_from_window(double now, Stats& stats) const;

  StatsOptions options_;
  double start_;
  double begin_;  // time of the newest thing that left, of a restart, or the start
  std::deque<Slice> slices_;
  int64_t num_steps_ = 0;  // in slices_
  Samples ttft_;
  Samples output_token_;
  Stats totals_;  // only its fields "since the start"
};

}  // namespace di::engine
